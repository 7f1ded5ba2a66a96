"""From one step's makespan to another's, cause by cause, in whole nanoseconds.

Telescoping replays in one printed order: the first step; with the second's compute durations, group by group; with its
transfers; with its posts; in its order; with its gaps; with what is missing in it or more. A bar is the difference of
two makespans, so the bars sum exactly, and what is left to the second's own makespan is shown as the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.diff.observe import Observed
from pipetrace.diff.replay import Graph, Inputs
from pipetrace.diff.work import Work
from pipetrace.errors import DeadlockError


class Part(StrEnum):
    """What a bar of the waterfall puts in."""

    COMPUTE = "compute"
    """Durations of one rank's or one stage's actions."""
    TRANSFER = "transfer"
    """How long transfers take, from when both sides had posted them."""
    POST = "post"
    """When sends and receives are posted: a lane blocked by an earlier item."""
    ORDER = "order"
    """The order in which each rank ran its actions."""
    GAP = "gap"
    """Time that passed though all an action needed was there: host and launch."""
    WORK = "work"
    """Actions that are missing, or more than the schedule has; and waiting for ranks that were not recorded."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One step of the waterfall.

    Args:
        part: What it puts in.
        name: The same in words, with the rank or stage.
        group: Rank or stage of a compute bar; None for others.
        makespan: ns with it and all bars before it.
        size: ns by which it makes the step longer; below 0 where shorter.
    """

    part: Part
    name: str
    group: int | None
    makespan: int
    size: int


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The bars between two makespans: base + Σ size + residual = measured, to the ns.

    Args:
        base: ns of the first step as replayed, the ideal's makespan.
        bars: In the order in which they were put in.
        residual: measured makespan - that of the last replay.
        measured: ns of the second step.
        by: "rank" or "stage": what the compute bars are of.
        deviation: Most ns by which a row's start in the last replay differs from the measured; 0 where replaying what
            was measured gives it back.
        notes: What could not be done as designed, a line each.
    """

    base: int
    bars: tuple[Bar, ...]
    residual: int
    measured: int
    by: str
    deviation: int
    notes: tuple[str, ...] = ()

    def of(self, part: Part) -> int:
        """ns of all bars of one part."""
        return sum(bar.size for bar in self.bars if bar.part is part)


def with_measured(
    work: Work,
    base: Inputs,
    measured: Observed,
    *,
    rows: BoolArray | None = None,
    times: bool = False,
    posts: bool = False,
    gaps: bool = False,
) -> Inputs:
    """One step's inputs with some of another's.

    Args:
        work: Their rows.
        base: The one.
        measured: The other.
        rows: Whose durations are taken from the other; shape (n,).
        times, posts, gaps: Whether those are.
    """
    known = measured.known & base.present
    moved = measured.moved & known[work.producer] & known[work.consumer]
    of = measured.inputs
    columns: dict[str, IntArray] = {}
    if rows is not None:
        taken = rows & known
        columns["duration"] = np.where(taken, of.duration, base.duration)
        columns["ready"] = np.where(taken[work.producer], of.ready, base.ready)
    if times:
        columns["time"] = np.where(moved, of.time, base.time)
    if posts:
        for name in ("delay", "anchor", "after"):
            columns[name] = np.where(moved, getattr(of, name), getattr(base, name))
    if gaps:
        # What waited for something that is not there cannot be told from the host's share: it comes with the last bar.
        told = known.copy()
        np.logical_and.at(told, work.consumer, moved)
        columns["gap"] = np.where(told, of.gap, base.gap)
    return base.but(**columns)


def waterfall(work: Work, base: Inputs, base_graph: Graph, measured: Observed, by: str = "rank") -> Waterfall:
    """The waterfall from one step to another.

    Args:
        work: Their rows.
        base: What replays the first, e.g. `work.at(costs)`.
        base_graph: In which order, e.g. `work.graph`.
        measured: The second.
        by: Whether compute bars are of a "rank" or of a "stage".
    """
    groups = work.rank if by == "rank" else work.stage
    names: list[tuple[Part, str, int | None]] = []
    steps = [base]
    rows = np.zeros(len(work), dtype=np.bool_)
    # Of ranks that were not recorded there is no compute to put in.
    for group in np.unique(groups[work.in_schedule & np.isin(work.rank, measured.recorded)]).tolist():
        rows = rows | (groups == group)
        steps.append(with_measured(work, base, measured, rows=rows))
        names.append((Part.COMPUTE, f"compute of {by} {group}", group))
    everything = np.ones(len(work), dtype=np.bool_)
    steps.append(with_measured(work, base, measured, rows=everything, times=True))
    names.append((Part.TRANSFER, "transfers", None))
    steps.append(with_measured(work, base, measured, rows=everything, times=True, posts=True))
    names.append((Part.POST, "posting of sends and receives", None))
    before = len(steps)
    steps += [steps[-1], with_measured(work, base, measured, rows=everything, times=True, posts=True, gaps=True)]
    names += [(Part.ORDER, "order", None), (Part.GAP, "host and launch gaps", None)]
    steps.append(measured.inputs)
    names.append((Part.WORK, _work_name(work, base, measured), None))

    makespans = base_graph.makespans(steps[:before])
    notes: tuple[str, ...] = ()
    graph = measured.graph
    try:
        _ = graph.levels
    except DeadlockError:
        graph = base_graph
        notes = (
            "the measured order waits for itself in a circle, as clocks that differ can show: the ideal's was kept",
        )
    if graph is not base_graph and np.array_equal(graph.previous, base_graph.previous):
        graph = base_graph
    last = list(graph.play(steps[before:]))
    makespans += [
        graph.makespan_of(start, end, step.present) for step, (start, end) in zip(steps[before:], last, strict=True)
    ]
    started = last[-1][0]
    deviation = int(np.abs(started - measured.start)[measured.known].max(initial=0))
    bars = tuple(
        Bar(part, name, group, makespans[i + 1], makespans[i + 1] - makespans[i])
        for i, (part, name, group) in enumerate(names)
    )
    residual = measured.makespan - makespans[-1]
    return Waterfall(makespans[0], bars, residual, measured.makespan, by, deviation, notes)


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in words: "rank 1", "ranks 0, 2"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _work_name(work: Work, base: Inputs, measured: Observed) -> str:
    absent = sorted(set(work.rank[base.present].tolist()) - set(measured.recorded))
    if not absent:
        return "missing and extra work"
    waits = f"waits for {ranks_text(absent)}, not recorded"
    recorded = np.isin(work.rank, measured.recorded)
    return waits if np.array_equal(base.present & recorded, measured.known) else f"missing and extra work, and {waits}"
