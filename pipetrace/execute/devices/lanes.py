"""A rank's two lanes as streams of a device: one for compute, one for all-to-alls, joined by events."""

from __future__ import annotations

from collections.abc import Callable

from pipetrace.execute.devices.base import Device, Event, Stream
from pipetrace.execute.lane_rows import NO_OTHER, LaneRow
from pipetrace.execute.program import Transfer


class LaneStreams:
    """See the module.

    Args:
        device: Whose streams.
        both: Whether there are all-to-alls that want a stream of their own.
    """

    def __init__(self, device: Device, *, both: bool) -> None:
        self.compute = device.stream()
        self.all_to_all = device.stream() if both else self.compute
        self._ended: dict[int, Event] = {}

    def enter(self, row: LaneRow, take: Callable[[Stream, Transfer], None]) -> Stream:
        """The stream of a row, which from here on waits for all that the row waits for. To be asked in list order.

        Args:
            row: Which.
            take: Lets a stream wait for what a receive brings.
        """
        mine, theirs = self._lanes(row)
        if row.other != NO_OTHER:
            mine.wait(self._ended[row.other])
        if row.opens and not row.gathers:
            theirs.wait(mine.record())
        for transfer in row.receives:
            take(mine, transfer)
        if row.opens and row.gathers:
            theirs.wait(mine.record())
        return mine

    def leave(self, row: LaneRow) -> Event:
        """The end of a row, to be asked for when its stream has been given all of it."""
        ended = self._ended[row.op.row] = self._lanes(row)[0].record()
        return ended

    def _lanes(self, row: LaneRow) -> tuple[Stream, Stream]:
        """The row's own, and the other."""
        lanes = self.compute, self.all_to_all
        return lanes[row.travels], lanes[not row.travels]
