"""A step in parts of MoE layers on a device: compute and all-to-alls on a stream each, joined by events.

The process goes through its list once and gives every row to the stream of its lane, together with what the row sends
and what it waits for; it does not itself wait for anything before the step's end. All-to-alls are given in list order,
which is the same on every replica. What the lanes wait for from each other is what `LanesStep` has them wait for.

On a GPU a stream that waits for a receive or for the other replicas holds up nothing else, and the process is far
ahead. It stays behind only where it must know what a device has counted: how many rows go to each expert, unless these
have a capacity.
"""

from __future__ import annotations

from collections.abc import Callable

from pipetrace.execute.board import LaneLine
from pipetrace.execute.devices.base import Device, Stream
from pipetrace.execute.devices.lanes import LaneStreams
from pipetrace.execute.lane_rows import lane_rows
from pipetrace.execute.program import Transfer
from pipetrace.execute.step import Receive, Seat, Step
from pipetrace.schedule import Schedule


class StreamsStep(Step):
    """See the module and `Step`.

    Args:
        schedule: In parts, what all ranks run.
        device: Whose streams.
        beside: The line of the all-to-all lane.
        ahead: Whether receives are posted at the step's beginning; otherwise the lane that waits posts them.
    """

    def __init__(self, of: Seat, *, schedule: Schedule, device: Device, beside: LaneLine, ahead: bool = True) -> None:
        super().__init__(of)
        self._device, self._ahead = device, ahead
        self._lanes = LaneStreams(device, both=True)
        self._rows = lane_rows(schedule, of.program)
        self._receives = {receive.code: receive for work in self._works for receive in work.receives}
        # Whichever lane did something last is what the board tells of.
        self._lines = of.line.beside(), beside
        for line in self._lines:
            line.show()
        self._broke: LaneLine | None = None
        # What stages and buffers were made of was given to no stream of a lane.
        device.synchronize()

    def _play(self) -> None:
        for receive in self._receives.values() if self._ahead else ():
            self._post(receive)
        waited: set[int] = set()
        for work, row in zip(self._works, self._rows, strict=True):
            line = self._lines[row.travels]

            def take(stream: Stream, transfer: Transfer, line: LaneLine = line) -> None:
                receive = self._receives[transfer.receive.code]
                if receive.code not in waited:
                    waited.add(receive.code)
                    stream.run(lambda: self._guarded(line, lambda: self._take(receive, line)))

            stream = self._lanes.enter(row, take)
            stream.run(lambda work=work, line=line: self._guarded(line, lambda: self._perform(work, line)))  # type: ignore[misc]
            self._lanes.leave(row)
        try:
            self._device.synchronize()
        except BaseException:
            if self._broke is not None:
                self._broke.show()
            raise

    def _take(self, receive: Receive, line: LaneLine) -> None:
        if not self._ahead:
            self._post(receive, line)
        self._wait(receive, line)

    def _guarded(self, line: LaneLine, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self._broke = self._broke or line
            raise
