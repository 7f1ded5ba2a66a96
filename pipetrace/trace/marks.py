"""Slices beside the tiles: waits, idle time and its causes, phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    BoolArray,
    IntArray,
    code_kind,
    code_layer,
    code_microbatch,
    code_part,
    code_pipe,
    code_stage,
)
from pipetrace.costs import Costs
from pipetrace.metrics import Cause, bindings, gaps_of, phases
from pipetrace.metrics.bindings import NO_TILE, Bindings
from pipetrace.metrics.gaps import pieces_of
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Timeline
from pipetrace.trace.naming import KINDS, PARTS, Arg, action_text, tile_args, tile_name
from pipetrace.trace.text import NOTHING, Choice, Number, Piece, Text, where

_CAUSES = tuple(Cause)
_WORDS = {  # where it is known what is waited for, and where not; what comes first is read in a narrow slice too
    Cause.NOTHING_YET: ("waits for ", "nothing yet"),
    Cause.INPUT: ("waits for ", "waits for its input"),
    Cause.GRADIENT: ("waits for ", "waits for its gradient"),
    Cause.LOCAL: ("waits for its own ", "waits for its own work"),
    Cause.TRANSFER: ("transfer of ", "a transfer"),
    Cause.HOST: ("host is late", "host is late"),
    Cause.NOTHING_LEFT: ("nothing left", "nothing left"),
}
_BEGINNINGS = (*(_WORDS[cause][0] for cause in _CAUSES), *(_WORDS[cause][1] for cause in _CAUSES))
MOST_EXPLAINED = 20_000
"""Idle times of a timeline that are explained in a sentence; where there are more, it would take seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """n slices of one lane of a timeline's ranks, rank by rank in the order of time.

    Args:
        lane: Which.
        process: replica × ranks + rank of each; shape (n,).
        start, end: ns on the timeline's clock; shape (n,).
        name, args: Of some rows, with the zero of the timeline on the trace's clock.
        colour: What shares a colour shares this number; 0 for none; shape (n,).
    """

    lane: str
    process: IntArray
    start: IntArray
    end: IntArray
    name: Callable[[slice], Text]
    args: Callable[[slice, int], list[Arg]]
    colour: IntArray

    def __len__(self) -> int:
        return self.start.size


def waits(timeline: Timeline, *, with_stage: bool) -> Marks:
    """From when a rank began to wait for a receive to its arrival."""
    rows = np.flatnonzero((timeline.waited != UNKNOWN) & (timeline.waited < timeline.end))
    process = timeline.replica * timeline.ranks + timeline.rank
    rows = rows[np.lexsort((timeline.waited[rows], process[rows]))]
    start, end = timeline.waited[rows], timeline.end[rows]

    def name(some: slice) -> Text:
        of = rows[some]
        return ["WAIT ", *tile_name(timeline.code[of], timeline.partner[of], with_stage=with_stage)]

    def args(some: slice, shift: int) -> list[Arg]:
        lasted = end[some] - start[some]
        return [
            replace(arg, value=lasted) if arg.key == "duration_ns" else arg
            for arg in tile_args(timeline, rows[some], shift)
        ]

    return Marks("waits", process[rows], start, end, name, args, code_microbatch(timeline.code[rows]) + 1)


def phase_marks(timeline: Timeline) -> Marks:
    """Warm-up, steady state and drain of each rank that has tiles."""
    columns: list[tuple[int, int, int, int, int]] = []
    for replica in range(timeline.replicas):
        begin, finish = timeline.where(timeline.replica == replica).span
        found = phases(timeline, replica)
        for rank, edges in enumerate(zip(found.steady_start, found.drain_start, strict=True)):
            first, last = timeline.rows_of(replica, rank)
            if not timeline.is_compute[first:last].any():
                continue
            all_edges = (begin, *edges, finish)
            idle = [of[rank] for of in (found.global_idle.warm_up, found.global_idle.steady, found.global_idle.drain)]
            columns += [
                (replica * timeline.ranks + rank, all_edges[i], all_edges[i + 1], i, idle[i])
                for i in range(3)
                if all_edges[i] < all_edges[i + 1]
            ]
    process, start, end, which, idle_ns = np.array(columns, dtype=np.int64).reshape(-1, 5).T

    def args(some: slice, _shift: int) -> list[Arg]:
        return [Arg("duration_ns", end[some] - start[some]), Arg("idle_ns", idle_ns[some])]

    words = ("warm-up", "steady", "drain")
    return Marks("phase", process, start, end, lambda some: [Choice(words, which[some])], args, np.zeros_like(process))


def idle_marks(schedule: Schedule, timeline: Timeline, costs: Costs | None) -> Iterator[Marks]:
    """Idle time of each rank's compute lane by its cause, replica by replica.

    Args:
        schedule: What the timeline is of.
        timeline: Ideal or measured.
        costs: What an ideal was simulated with.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    for replica in range(timeline.replicas):
        of = bindings(schedule, timeline, costs, replica)
        yield _idle_of(of, replica * timeline.ranks)


def _idle_of(of: Bindings, first_process: int) -> Marks:
    rank, start, end, cause, row = pieces_of(of)
    sentences = [str(gap) for gap in gaps_of(of)] if rank.size <= MOST_EXPLAINED else None
    has_next = row != NO_TILE
    after = np.where(has_next, row, 0)
    awaits = has_next & (cause != _CAUSES.index(Cause.HOST))
    if rank.size:
        awaits &= of.producer[after] != NO_TILE

    def awaited(some: slice) -> IntArray:
        return np.where(awaits[some], of.half[after[some]], 0)

    def name(some: slice) -> Text:
        code, there = awaited(some), awaits[some]
        return [Choice(_BEGINNINGS, np.where(there, cause[some], cause[some] + len(_CAUSES))), *_of_stage(code, there)]

    def args(some: slice, _shift: int) -> list[Arg]:
        code, there = awaited(some), awaits[some]
        next_code, next_partner = of.tiles.code[after[some]], of.tiles.partner[after[some]]
        said = [] if sentences is None else [Arg("why", [Choice(sentences[some], np.arange(code.size))])]
        said.append(Arg("cause", [Choice([of_all.value for of_all in _CAUSES], cause[some])]))
        said.append(Arg("awaits", action_text(code, np.full(code.size, NO_ACTION)), there))
        producer = np.where(there, of.producer[after[some]], 0)
        said.append(Arg("awaits_rank", of.tiles.rank[producer], there))
        said.append(Arg("before", action_text(next_code, next_partner), has_next[some]))
        said.append(Arg("duration_ns", end[some] - start[some]))
        return said

    return Marks("idle", rank + first_process, start, end, name, args, np.zeros_like(rank))


def _of_stage(code: IntArray, present: BoolArray) -> list[Piece]:
    """`I 5 of stage 3`, of a part of a layer `I attn 5 l0 of stage 3`."""
    part, pipe, layered = code_part(code), code_pipe(code), present & (code_part(code) > 0)
    pieces: list[Piece] = [Choice(KINDS, np.where(present, code_kind(code), NOTHING))]
    if layered.any():
        pieces += [where(" ", layered), Choice(PARTS, np.where(layered, part - 1, NOTHING))]
    pieces.append(Number(code_microbatch(code), present, before=" "))
    if layered.any():
        pieces.append(Number(code_layer(code), layered, before=" l"))
    pieces.append(Number(code_stage(code), present, before=" of stage "))
    if pipe.any():
        pieces.append(Number(pipe, present & (pipe > 0), before=" of pipe "))
    return pieces
