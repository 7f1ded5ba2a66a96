"""The critical path: the chain of actions and transfers that makes a step as long as it is."""

from __future__ import annotations

from dataclasses import dataclass

from pipetrace.action import NO_ACTION, Action, Pair
from pipetrace.costs import Costs
from pipetrace.metrics.bindings import NO_TILE, Bindings, Reason, bindings
from pipetrace.metrics.words import words
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the critical path: an action, or the transfer of what it made.

    Args:
        action: What ran; for a transfer, what waited for its arrival.
        rank: Where; for a transfer, where it arrived.
        start: When it started, ns.
        end: Until when it is on the path, ns: an overlapped pair can release its output before it ends.
        transfer: Whether this is a transfer.
        delay: ns between the end of the step before and `start`: 0 in an ideal; in what was measured, the host's
            share. Before the first step it is counted from the first F, B, I or W.
        reason: Why it did not start earlier.
        cause: That reason in words, e.g. "waits for I5 of stage 3 on rank 3".
    """

    action: Action | Pair
    rank: int
    start: int
    end: int
    transfer: bool
    delay: int
    reason: Reason
    cause: str

    @property
    def duration(self) -> int:
        """ns on the path, without `delay`."""
        return self.end - self.start

    def __str__(self) -> str:
        what = f"transfer to {self.action}" if self.transfer else str(self.action)
        return f"{what} on rank {self.rank}, {self.start} ... {self.end} ns: {self.cause}"


def critical_path(
    schedule: Schedule, timeline: Timeline, *, costs: Costs | None = None, replica: int = 0
) -> list[Step]:
    """The path that ends with the last F, B, I or W, traced back from there, in the order of time.

    Where an action was held up by two things at once, its own rank is named rather than another one. Σ of `duration`
    and `delay` is the makespan, to the ns.

    Args:
        schedule: What the timeline is of.
        timeline: Ideal or measured; what was not measured is skipped.
        costs: What an ideal was simulated with; see `pipetrace.metrics.bindings.bindings`.
        replica: Which replica.

    Returns:
        Its steps; none for an empty timeline.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    return path_of(bindings(schedule, timeline, costs, replica))


def path_of(of: Bindings) -> list[Step]:
    """The critical path of a timeline whose bindings are known."""
    tiles = of.tiles
    computes = tiles.is_compute.nonzero()[0]
    if not computes.size:
        return []
    begin, _ = tiles.span
    row = int(computes[tiles.end[computes].argmax()])
    until = int(tiles.end[row])
    steps: list[Step] = []
    seen: set[int] = set()
    while True:
        seen.add(row)
        start, reason, before = int(tiles.start[row]), Reason(int(of.reason[row])), int(of.bound[row])
        if before == NO_TILE or before in seen:
            # A circle needs clocks that differ, and tiles that start at once.
            steps.append(_step(of, row, start, until, False, start - begin, Reason.FIRST))
            break
        sent = int(of.sent[row])
        there = sent if reason is Reason.RANK else int(of.there[row])
        left = int(of.left[row])
        if there > sent:
            steps.append(_step(of, row, start, until, False, start - there, reason))
            steps.append(_step(of, row, sent, there, True, sent - left, reason))
        else:
            steps.append(_step(of, row, start, until, False, start - left, reason))
        row, until = before, left
    return steps[::-1]


def _step(of: Bindings, row: int, start: int, end: int, transfer: bool, delay: int, reason: Reason) -> Step:
    tiles = of.tiles
    action, partner = Action.from_code(int(tiles.code[row])), int(tiles.partner[row])
    item = action if partner == NO_ACTION else Pair(action, Action.from_code(partner))
    cause = because(of, row, reason)
    if transfer:
        cause = cause.replace("waits for", "carries", 1)
    return Step(item, int(tiles.rank[row]), start, end, transfer, delay, reason, cause)


def because(of: Bindings, row: int, reason: Reason) -> str:
    """Why the action in a row did not start earlier, without its name."""
    tiles = of.tiles
    if reason is Reason.FIRST:
        return "is the first"
    if reason in (Reason.RANK, Reason.POSTED):
        before = int(of.bound[row])
        what = words(int(tiles.code[before]), int(tiles.partner[before]))
        if reason is Reason.RANK:
            return f"runs on rank {tiles.rank[row]} after {what}"
        return f"waits for {awaited(of, row)}, whose receive was posted after {what}"
    return f"waits for {awaited(of, row)}"


def awaited(of: Bindings, row: int) -> str:
    """The action that made what a row needs and what arrived last, with its rank."""
    return f"{words(int(of.half[row]))} on rank {of.tiles.rank[int(of.producer[row])]}"
