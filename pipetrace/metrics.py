"""What a timeline or a schedule amounts to: bubbles and memory in flight.

Both definitions of the bubble are in use, so both are always given, labelled: *global idle* is the makespan less a
rank's busy time, *in-span idle* the rank's own first-to-last span less its busy time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import COMPUTE_KINDS, NO_ACTION, IntArray, Kind, code_kind
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Bubbles:
    """Idle time of one replica's compute lanes, in ns; lists have one entry a rank.

    Args:
        makespan: First to last F, B, I or W over all ranks.
        busy: Time covered by F, B, I and W; what overlaps counts once.
        global_idle: makespan - busy.
        in_span_idle: The rank's own first-to-last span - busy.
    """

    makespan: int
    busy: tuple[int, ...]
    global_idle: tuple[int, ...]
    in_span_idle: tuple[int, ...]

    @property
    def fraction(self) -> float:
        """Σ global idle / (p × makespan); 0 for an empty timeline."""
        whole = len(self.busy) * self.makespan
        return sum(self.global_idle) / whole if whole else 0.0


def bubbles(timeline: Timeline, replica: int = 0) -> Bubbles:
    """The bubbles of one replica of a timeline, ideal or measured."""
    tiles = timeline.where(timeline.is_compute & (timeline.replica == replica))
    makespan = tiles.makespan
    busy, in_span = [], []
    for rank in range(timeline.ranks):
        mine = tiles.rank == rank
        start, end = tiles.start[mine], tiles.end[mine]
        covered = _covered(start, end)
        busy.append(covered)
        in_span.append(int(end.max() - start.min()) - covered if start.size else 0)
    return Bubbles(makespan, tuple(busy), tuple(makespan - b for b in busy), tuple(in_span))


def _covered(start: IntArray, end: IntArray) -> int:
    """ns covered by intervals that are sorted by start."""
    if not start.size:
        return 0
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


@dataclass(frozen=True, slots=True)
class PeakInFlight:
    """The most activations a rank holds at once, in chunks (one stage, one microbatch); one entry a rank.

    The two extremes of what real memory does, by what frees an activation.
    """

    release_at_input_grad: tuple[int, ...]
    release_at_weight_grad: tuple[int, ...]


def peak_in_flight(schedule: Schedule) -> PeakInFlight:
    """Peak activations in flight. Ranks run in order, so it follows from the order alone, at any costs."""
    return PeakInFlight(
        *(
            tuple(int(in_flight(schedule, rank, release).max(initial=0)) for rank in range(schedule.ranks))
            for release in (Kind.I, Kind.W)
        )
    )


def in_flight(schedule: Schedule, rank: int, release: Kind) -> IntArray:
    """Activations that a rank holds while each action of its list runs, in chunks.

    Args:
        schedule: Whose list.
        rank: Which list.
        release: `Kind.I` for activations freed at the end of I, `Kind.W` at the end of W; a B frees at its end.

    Returns:
        Shape (actions of the rank,), in list order; sends and receives are left out.
    """
    rows = slice(int(schedule.first[rank]), int(schedule.first[rank + 1]))
    computes = np.isin(code_kind(schedule.code[rows]), [int(kind) for kind in COMPUTE_KINDS])
    code, partner = schedule.code[rows][computes], schedule.partner[rows][computes]
    backward = code_kind(np.where(partner != NO_ACTION, partner, code))
    takes = code_kind(code) == Kind.F
    frees = (backward == Kind.B) | (backward == release)
    # Taken at an action's start, freed at its end: while it runs, both are held.
    held: IntArray = np.cumsum(takes) - np.cumsum(frees) + frees
    return held
