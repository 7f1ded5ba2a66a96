"""What the step would take had one thing been otherwise: replays of what was measured, and other schedules' ideals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipetrace.action import NO_ACTION, Part
from pipetrace.costs import Costs
from pipetrace.diff.fault import Case
from pipetrace.diff.find_compute import with_durations
from pipetrace.diff.reference import balanced_costs
from pipetrace.diff.replay import NEVER, Inputs
from pipetrace.errors import PipetraceError
from pipetrace.links import NO_ROW
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.same_model import cut
from pipetrace.schedule import Schedule
from pipetrace.schedules import build, names
from pipetrace.simulate import simulate

MOST_ROWS = 20_000
"""Rows of another schedule beyond which it is not tried."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One row.

    Args:
        name: What would be otherwise.
        makespan: ns that the step would take.
        saved: ns less than what it is compared with: the measured step, or for another schedule this one's ideal at
            the same costs.
        ideal: Whether it is an ideal at the run's costs, without its overhead.
    """

    name: str
    makespan: int
    saved: int
    ideal: bool = False


def what_if(case: Case) -> list[WhatIf]:
    """Replays of the measured step with one thing healed, those that save most first.

    A rank is healthy when its actions take what the reference says; stages are balanced when each kind of action takes
    what it does on the mean over the stages.
    """
    named = list(_healed(case))
    makespans = case.seen.graph.makespans([case.seen.inputs, *(inputs for _, inputs in named)])
    now = makespans[0]
    rows = [WhatIf(name, makespan, now - makespan) for (name, _), makespan in zip(named, makespans[1:], strict=True)]
    if not np.array_equal(case.seen.graph.previous, case.graph.previous):
        ordered = case.graph.makespans([case.seen.inputs])[0]
        rows.append(WhatIf("the schedule's order kept", ordered, now - ordered))
    return sorted(rows, key=lambda row: -row.saved)


def _healed(case: Case) -> Iterator[tuple[str, Inputs]]:
    work, seen, reference = case.work, case.seen, case.reference
    inputs = seen.inputs
    known = seen.known & work.in_schedule
    for by, groups in (("rank", work.rank), ("stage", work.stage)):
        of = np.unique(groups[known]).tolist()
        if by == "stage" and np.array_equal(work.rank, work.stage):
            continue
        for group in of:
            mine = known & (groups == group)
            yield f"{by} {group} healthy", with_durations(case, np.where(mine, reference.duration, inputs.duration))
    yield "stages balanced", with_durations(case, _balanced(case))
    k = inputs.time.size
    if k:
        free = inputs.but(
            time=np.where(inputs.time > NEVER, 0, NEVER),
            delay=np.zeros(k, dtype=np.int64),
            anchor=np.full(k, NO_ROW, dtype=np.int64),
            after=np.full(k, NEVER, dtype=np.int64),
        )
        yield "P2P free", free
        yield "receives posted ahead", inputs.but(after=free.after)
    if work.travels.any():
        hidden = np.where(work.travels, 0, inputs.duration)
        yield "all-to-all hidden", with_durations(case, hidden)
    yield "no host gaps", inputs.but(gap=np.zeros_like(inputs.gap))


def _balanced(case: Case) -> np.typing.NDArray[np.int64]:
    """Durations with each kind's mean over the stages in place of each stage's own mean."""
    work, seen = case.work, case.seen
    duration = seen.inputs.duration.astype(np.float64)
    known = seen.known & work.in_schedule
    for kind in np.unique(work.kind[known]).tolist():
        mine = known & (work.kind == kind)
        stages, of = np.unique(work.stage[mine], return_inverse=True)
        mean = np.bincount(of, duration[mine]) / np.bincount(of)
        duration[mine] *= (mean.mean() / np.maximum(mean, 1e-9))[of] if stages.size > 1 else 1.0
    return np.round(duration).astype(np.int64)


def other_schedules(schedule: Schedule, fitted: Costs) -> list[WhatIf]:
    """The ideals of other schedules, and of other numbers of microbatches, at this run's costs; the fastest first.

    Of a run in parts of MoE layers those of other schedules, and of other orders of the parts of its own pairs.

    The model is the same: where a schedule cuts it into more stages, each costs as much less. What unequal stages add
    is left out on both sides. With other microbatch numbers the makespan is that of a step of as many.

    Args:
        schedule: What was run.
        fitted: Costs of its stages; see `pipetrace.fit.fit_costs`.
    """
    if len(schedule) > MOST_ROWS:
        return []
    schedule = schedule.compute_only()
    balanced = balanced_costs(fitted)
    if schedule.has_parts:
        return _in_parts(schedule, balanced)
    # Of a plain pipeline's stage: the other way round, as if it were cut from this schedule's stages.
    plain = cut(Costs(default=balanced.default, p2p=fitted.p2p), schedule.stages, schedule.ranks)
    now = simulate(schedule, Costs(default=balanced.default, p2p=fitted.p2p)).makespan
    rows = []
    for name in names():
        try:
            other = build(name, schedule.ranks, schedule.microbatches)
            if name == schedule.name or len(other) > MOST_ROWS:
                continue
            makespan = simulate(other, cut(plain, schedule.ranks, other.stages)).makespan
        except PipetraceError:
            continue
        rows.append(WhatIf(name, makespan, now - makespan, ideal=True))
    rows.sort(key=lambda row: row.makespan)
    for m in (schedule.microbatches // 2, 2 * schedule.microbatches):
        try:
            other = build(schedule.name, schedule.ranks, m)
        except PipetraceError:
            continue
        if other.stages == schedule.stages and len(other) <= MOST_ROWS:
            each = simulate(other, Costs(default=balanced.default, p2p=fitted.p2p)).makespan / m
            saved = round(now / schedule.microbatches - each)
            rows.append(WhatIf(f"m = {m}, per microbatch", round(each), saved, ideal=True))
    return rows


def _in_parts(schedule: Schedule, costs: Costs) -> list[WhatIf]:
    """The same for a schedule in parts of MoE layers: other orders of its pairs, and other schedules in the best order.

    The layers are as many; a schedule whose stages cannot be cut so that they have whole ones is left out.

    Args:
        schedule: What was run.
        costs: Of the parts of a layer, and of transfers.
    """
    layers = Fraction(int(schedule.chain.layers.sum()), schedule.stages)
    costs = Costs(p2p=costs.p2p, layer=costs.layer)
    now = simulate(schedule, costs).makespan
    rows = []
    for name in names():
        try:
            whole = build(name, schedule.ranks, schedule.microbatches)
        except PipetraceError:
            continue
        paired = bool((whole.partner != NO_ACTION).any())
        held = layers * schedule.stages / whole.stages
        if held.denominator != 1 or len(whole) * int(held) * len(Part) > MOST_ROWS:
            continue
        makespans = {}
        for order in MoeOrder if paired else (MoeOrder.SERIAL,):
            expanded = expand_moe(whole, Overlap(order, int(held)), costs)
            makespans[f"{name} in {order}" if paired else name] = simulate(expanded, costs).makespan
        if name != schedule.name:
            best = min(makespans, key=lambda named: makespans[named])
            makespans = {best: makespans[best]}
        rows += [WhatIf(named, makespan, now - makespan, ideal=True) for named, makespan in makespans.items()]
    return sorted((row for row in rows if row.name != schedule.name), key=lambda row: row.makespan)
