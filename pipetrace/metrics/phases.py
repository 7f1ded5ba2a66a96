"""Warm-up, steady state and drain of each rank, and how much of its idle time lies in each.

A rank warms up until its first backward starts, and drains once its last forward has ended. In GPipe, and wherever
m is small, the last forward ends before the first backward starts: the wait between them then counts as warm-up (the
pipeline is still filling, the rank has nothing to send back), and the steady state is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetrace.action import Kind
from pipetrace.metrics.tiles import backward_half, by_rank, covered, is_kind
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class PhaseIdle:
    """Idle time by phase, in ns; one entry a rank. Their sum is the whole idle time of the rank, to the ns."""

    warm_up: tuple[int, ...]
    steady: tuple[int, ...]
    drain: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one replica's ranks; tuples have one entry a rank.

    Args:
        steady_start: When the rank's first I or B starts, ns on the timeline's clock; the end of the step where it has
            none, so that all is warm-up.
        drain_start: When its last F has ended, but not before `steady_start`.
        global_idle: Idle time from the step's first F, B, I or W to its last, by phase.
        in_span_idle: Idle time between the rank's own first and last, by phase.
    """

    steady_start: tuple[int, ...]
    drain_start: tuple[int, ...]
    global_idle: PhaseIdle
    in_span_idle: PhaseIdle


def phases(timeline: Timeline, replica: int = 0) -> Phases:
    """The phases of one replica of a timeline, ideal or measured; an overlapped pair is both forward and backward."""
    tiles, first = by_rank(timeline, replica)
    begin, finish = tiles.span
    forward = is_kind(tiles.code, Kind.F)
    backward = is_kind(backward_half(tiles.code, tiles.partner), Kind.I, Kind.B)
    edges_of, outer, inner = [], [], []
    for row, stop in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        mine = slice(row, stop)
        start, end = tiles.start[mine], tiles.end[mine]
        # Sorted by start, so the first backward is the earliest; ends may cross in what was measured.
        backward_start, forward_end = start[backward[mine]], end[forward[mine]]
        steady = int(backward_start[0]) if backward_start.size else finish
        drain = max(steady, int(forward_end.max())) if forward_end.size else steady
        edges = (begin, steady, drain, finish)
        edges_of.append(edges)
        outer.append(_idle_between(edges, [covered(start, end, edge) for edge in edges]))
        own = (int(start[0]), int(end.max())) if start.size else (finish, finish)
        within = tuple(min(max(edge, own[0]), own[1]) for edge in edges)
        inner.append(_idle_between(within, [covered(start, end, edge) for edge in within]))
    return Phases(
        tuple(edges[1] for edges in edges_of),
        tuple(edges[2] for edges in edges_of),
        PhaseIdle(*(tuple(of[part] for of in outer) for part in range(3))),
        PhaseIdle(*(tuple(of[part] for of in inner) for part in range(3))),
    )


def _idle_between(edges: tuple[int, ...], busy_until: list[int]) -> list[int]:
    """ns between neighbouring edges that are not busy, from the busy time before each edge."""
    return [edges[i + 1] - edges[i] - (busy_until[i + 1] - busy_until[i]) for i in range(len(edges) - 1)]
