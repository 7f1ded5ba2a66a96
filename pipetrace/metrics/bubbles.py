"""Bubbles: how long each rank stands idle.

Both definitions are in use, so both are always given, labelled: *global idle* is the makespan less a rank's busy time,
*in-span idle* the rank's own first-to-last span less its busy time.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetrace.metrics.tiles import by_rank, covered
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
    tiles, first = by_rank(timeline, replica)
    makespan = tiles.makespan
    busy, in_span = [], []
    for begin, stop in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        start, end = tiles.start[begin:stop], tiles.end[begin:stop]
        last = int(end.max()) if end.size else 0
        of_rank = covered(start, end, last)
        busy.append(of_rank)
        in_span.append(last - int(start[0]) - of_rank if start.size else 0)
    return Bubbles(makespan, tuple(busy), tuple(makespan - b for b in busy), tuple(in_span))
