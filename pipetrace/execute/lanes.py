"""A step in parts of MoE layers: a compute lane and an all-to-all lane, each a thread that runs its rows in list order.

A row starts when its lane is free and what it takes is there: what its own rank makes on the other lane, and what comes
from other ranks, for which the lane that runs the row waits. Behind a fence neither lane goes on before both have come
to it. That is what `pipetrace.lanes` simulates.

All-to-alls are real and block their thread alone, so that compute goes on beside them; that they follow each other in
list order is what makes them meet those of the other replicas. In the trace both lanes have `PP:` labels, each in its
own thread; where compute stands idle for an all-to-all it says so, `WAIT:4F0@2.dispatch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from queue import SimpleQueue

from pipetrace.execute.board import LaneLine, Line
from pipetrace.execute.lane_rows import NO_FENCE, NO_OTHER, LaneRow, lane_rows
from pipetrace.execute.sleeping import take_turns
from pipetrace.execute.step import Receive, Seat, Step, Work
from pipetrace.schedule import Schedule

_NONE = NO_FENCE  # no row


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A row with what it waits for beside its lane.

    Args:
        work: What is run.
        receives: What must have arrived before.
        other: The last row of the other lane that must have ended before, or -1.
        awaited: The label of waiting for that.
        fence: The last fence at or before it, or -1.
        gathers: Whether it opens the fence only when what it waits for has arrived.
    """

    work: Work
    receives: tuple[Receive, ...]
    other: int
    awaited: str
    fence: int
    gathers: bool


@dataclass(slots=True, eq=False)
class _Lane:
    """Its rows, and how far it has come.

    Args:
        rows: In list order.
        line: Where it says what it does.
        ended: The last row that has ended.
    """

    rows: list[_Row]
    line: Line
    ended: int = _NONE


class _StoppedError(Exception):
    """The other lane broke."""


class LanesStep(Step):
    """See the module and `Step`.

    Args:
        schedule: In parts, what all ranks run.
        beside: The line of the all-to-all lane.
        ahead: Whether receives are posted at the step's beginning; otherwise the lane that waits posts them.
    """

    def __init__(self, of: Seat, *, schedule: Schedule, beside: LaneLine, ahead: bool = True) -> None:
        super().__init__(of)
        self._ahead = ahead
        take_turns()
        self._beside = beside
        compute, all_to_all = _split(self._works, lane_rows(schedule, of.program))
        self._compute, self._all_to_all = _Lane(compute, of.line), _Lane(all_to_all, beside)
        self._changed = threading.Condition()
        self._fence = _NONE
        self._arrived: set[int] = set()
        self._error: BaseException | None = None
        self._orders: SimpleQueue[None] = SimpleQueue()
        self._over = True
        threading.Thread(target=self._serve, name="all-to-all", daemon=True).start()

    def _play(self) -> None:
        for lane in (self._compute, self._all_to_all):
            lane.ended = _NONE
        self._arrived.clear()
        self._fence, self._over = _NONE, False
        for work in self._works if self._ahead else ():
            for receive in work.receives:
                self._post(receive)
        self._orders.put(None)
        try:
            self._run_lane(self._compute, self._all_to_all)
            with self._changed:
                self._idle(lambda: self._over)
        except BaseException as error:
            with self._changed:
                theirs, self._error = self._error, error
                self._changed.notify_all()
            if isinstance(error, _StoppedError) and theirs is not None:
                # The board tells where it was: the other lane, though this one was not idle when it happened.
                self._beside.show()
                raise theirs from None
            raise

    def _serve(self) -> None:
        """The all-to-all lane's thread: its rows, step after step."""
        while True:
            self._orders.get()
            error: BaseException | None = None
            try:
                self._run_lane(self._all_to_all, self._compute)
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the rank's own thread must hear of it
                error = raised
            with self._changed:
                self._over = True
                self._error = self._error or error
                self._changed.notify_all()

    def _run_lane(self, lane: _Lane, other: _Lane) -> None:
        for row in lane.rows:
            number = row.work.op.row
            opens = row.fence == number
            self._await(lane, other, row, opened=not opens)
            if opens and not row.gathers:
                self._open(number)
            missing = [receive for receive in row.receives if receive.code not in self._arrived]
            for receive in missing if not self._ahead else ():
                self._post(receive, lane.line)
            for receive in missing:
                self._wait(receive, lane.line)
                self._arrived.add(receive.code)
            if opens and row.gathers:
                self._open(number)
            self._perform(row.work, lane.line)
            with self._changed:
                lane.ended = number
                self._changed.notify_all()

    def _open(self, fence: int) -> None:
        with self._changed:
            self._fence = fence
            self._changed.notify_all()

    def _await(self, lane: _Lane, other: _Lane, row: _Row, *, opened: bool) -> None:
        """Returns when the other lane, and the fence before the row unless it is to open it, have come so far."""

        def ready() -> bool:
            return other.ended >= row.other and (not opened or self._fence >= row.fence)

        with self._changed:
            if self._error is not None:
                raise _StoppedError
            if ready():
                return
            if lane is self._all_to_all:
                self._changed.wait_for(lambda: self._error is not None or ready())
                if self._error is not None:
                    raise _StoppedError
            else:
                awaits = row.awaited if other.ended < row.other else ""
                with self._label(awaits) if awaits else nullcontext():
                    self._idle(ready)

    def _idle(self, ready: Callable[[], bool]) -> None:
        """The compute lane stands idle until the other has come so far."""
        self._beside.show()
        self._changed.wait_for(lambda: self._error is not None or ready())
        if self._error is not None:
            raise _StoppedError
        self._beside.hide()


def _split(works: list[Work], plan: list[LaneRow]) -> tuple[list[_Row], list[_Row]]:
    """The rows of the compute and of the all-to-all lane."""
    receives = {receive.code: receive for work in works for receive in work.receives}
    texts = {work.op.row: work.op.text for work in works}
    lanes: tuple[list[_Row], list[_Row]] = ([], [])
    for work, row in zip(works, plan, strict=True):
        awaited = f"WAIT:{texts[row.other]}" if row.other != NO_OTHER else ""
        taken = tuple(receives[transfer.receive.code] for transfer in row.receives)
        lanes[row.travels].append(_Row(work, taken, row.other, awaited, row.fence, row.gathers))
    return lanes
