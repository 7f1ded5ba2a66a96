"""Which action of its list a rank starts next; the same rule where a step is simulated and where it is run.

A rank that keeps the list order starts the first action as soon as that has what it needs. One that may leave it starts
the first action that is *ready*, within a cap on the activations it holds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind
from pipetrace.errors import ScheduleError
from pipetrace.links import Links
from pipetrace.schedule import Schedule
from pipetrace.transfers import is_transfer
from pipetrace.waiting import Waiting

NOTHING = -1
"""No row."""


class ReadyList:
    """What is left of one rank's list in a step.

    Args:
        rows: The list: rows of the schedule, ascending.
        takes, gives: Activations that a row takes at its start and gives back at its end, by row of the schedule.
        cap: Most activations in flight.
        reorder: Whether a later row may start before an earlier one.
    """

    __slots__ = ("_cap", "_gives", "_others", "_ready", "_reorder", "_takers", "_takes", "in_flight", "rows")

    def __init__(
        self, rows: Iterable[int], takes: Sequence[int], gives: Sequence[int], cap: int, *, reorder: bool
    ) -> None:
        self.rows = deque(rows)
        self.in_flight = 0
        self._takes, self._gives, self._cap, self._reorder = takes, gives, cap, reorder
        self._ready: set[int] = set()
        # Heaps, and rows that have started since: those that take an activation, and the others.
        self._takers: list[int] = []
        self._others: list[int] = []

    def add(self, row: int) -> None:
        """Says that all that a row needs is there."""
        self._ready.add(row)
        if self._reorder:
            heapq.heappush(self._takers if self._takes[row] else self._others, row)

    def choose(self) -> int:
        """The row that starts now if the rank is free, or `NOTHING`; there must be one left."""
        first = self.rows[0]
        if first in self._ready:
            return first
        if not self._reorder:
            return NOTHING
        taker, other = (self._first_left(heap) for heap in (self._takers, self._others))
        if taker != NOTHING and (other == NOTHING or taker < other) and self._may_overtake(taker):
            return taker
        return other

    def start(self, row: int) -> None:
        """Says that a row starts."""
        if row == self.rows[0]:
            self.rows.popleft()
        else:
            self.rows.remove(row)
        self._ready.discard(row)
        self.in_flight += self._takes[row]

    def end(self, row: int) -> None:
        """Says that a row has ended."""
        self.in_flight -= self._gives[row]

    def _first_left(self, heap: list[int]) -> int:
        while heap and heap[0] not in self._ready:
            heapq.heappop(heap)
        return heap[0] if heap else NOTHING

    def _may_overtake(self, taker: int) -> bool:
        """Whether the list order can still be followed within the cap after a row has taken its activation.

        If so, then however the step goes on, there is a way to its end. If not, it is not for later takers either.
        """
        held = peak = self.in_flight
        for row in self.rows:
            if row == taker:
                break
            peak = max(peak, held + self._takes[row])
            held += self._takes[row] - self._gives[row]
        return bool(peak + self._takes[taker] <= self._cap)


def ready_lists(schedule: Schedule, waiting: Waiting) -> list[Callable[[], ReadyList]]:
    """For each rank, what makes its list at a step's beginning; sends and receives that are listed are left out.

    An activation is taken by F and given back at the end of B or W. The cap of each rank is `waiting.caps`, or else the
    most that its list order holds.

    Raises:
        ScheduleError: A rank may leave the list order, and the caps are not one a rank, or less than the list order
            itself reaches: a rank that falls back on it could not keep them.
    """
    kind = code_kind(schedule.code)
    backward_kind = code_kind(np.where(schedule.partner != NO_ACTION, schedule.partner, schedule.code))
    takes = (kind == Kind.F).astype(np.int64)
    gives = ((backward_kind == Kind.B) | (backward_kind == Kind.W)).astype(np.int64)
    compute = np.flatnonzero(~is_transfer(schedule.code))
    takes_of, gives_of = takes.tolist(), gives.tolist()

    bounds = np.searchsorted(compute, schedule.first).tolist()
    lists = [compute[begin:end].tolist() for begin, end in itertools.pairwise(bounds)]
    caps = [_peak(takes, gives, rows) for rows in lists]
    if waiting.caps is not None and waiting.reorders:
        _check_caps(waiting.caps, caps)
        caps = list(waiting.caps)

    def of_rank(rows: Sequence[int], cap: int) -> Callable[[], ReadyList]:
        return lambda: ReadyList(rows, takes_of, gives_of, cap, reorder=waiting.reorders)

    return [of_rank(rows, cap) for rows, cap in zip(lists, caps, strict=True)]


def _check_caps(caps: Sequence[int], peaks: Sequence[int]) -> None:
    """Refuses caps that a list order with these peaks cannot keep."""
    if len(caps) != len(peaks):
        raise ScheduleError(f"{len(caps)} caps for {len(peaks)} ranks", "give one a rank")
    for rank, (cap, peak) in enumerate(zip(caps, peaks, strict=True)):
        if cap < peak:
            raise ScheduleError(
                f"rank {rank}: a cap of {cap} chunks has no room for the list order, which holds {peak}",
                f"this order needs caps of at least {max(peaks)}",
            )


def _peak(takes: IntArray, gives: IntArray, rows: Sequence[int]) -> int:
    """Most activations in flight in list order."""
    return int((np.cumsum(takes[rows]) - np.cumsum(gives[rows]) + gives[rows]).max(initial=0))


def local_edges(links: Links) -> tuple[list[list[int]], list[list[int]]]:
    """The rows of the same rank that each row waits for, and those that wait for it."""
    before: list[list[int]] = [[] for _ in range(links.rank.size)]
    after: list[list[int]] = [[] for _ in range(links.rank.size)]
    for column in (links.inputs, links.local, links.gradients):
        here = np.flatnonzero((column >= 0) & ~links.crosses(column))
        for row, producer in zip(here.tolist(), column[here].tolist(), strict=True):
            before[row].append(producer)
            after[producer].append(row)
    return before, after
