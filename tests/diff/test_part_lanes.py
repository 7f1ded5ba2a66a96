"""Schedules in parts of layers: two lanes a rank, and fences between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipetrace.costs import Costs
from pipetrace.diff import Analysis, diff
from pipetrace.diff.reference import balanced_costs
from pipetrace.diff.waterfall import Part
from pipetrace.diff.work import Work
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate

MS = 1_000_000


def layer(all_to_all: float = 1, p2p: float = 0.1) -> Costs:
    part = PartCosts(MS, MS, MS // 2)
    travels = PartCosts(round(all_to_all * MS), round(all_to_all * MS), 0)
    return Costs(layer=LayerCosts(part, travels, part, travels), p2p=round(p2p * MS))


def parts(order: MoeOrder, name: str = "dualpipev", layers: int = 2) -> Schedule:
    return expand_moe(build(name, 2, 6), Overlap(layers=layers, order=order), layer())


@pytest.mark.parametrize("order", list(MoeOrder))
@pytest.mark.parametrize("name", ["dualpipev", "1f1b", "moe-1f1b"])
def test_a_replay_is_the_simulation(order: MoeOrder, name: str) -> None:
    schedule = parts(order, name)
    for costs in (layer(), layer(1.7, 0), layer(0.4, 2)):
        work = Work.of(schedule, [])
        ((start, end),) = work.graph.play([work.at(costs)])
        timeline = simulate(schedule, costs)
        codes = {int(code): (s, e) for code, s, e in zip(timeline.code, timeline.start, timeline.end, strict=True)}
        for code, s, e in zip(work.code.tolist(), start.tolist(), end.tolist(), strict=True):
            assert codes[code] == (s, e)


@pytest.mark.parametrize("order", list(MoeOrder))
def test_slower_all_to_alls_have_the_fault_and_the_waterfall_sums(order: MoeOrder) -> None:
    schedule = parts(order)
    measured = simulate(schedule, layer(1.6))
    of = Analysis(diff(simulate(schedule, layer()), measured), schedule, layer())
    assert of.waterfall.base + sum(bar.size for bar in of.waterfall.bars) == measured.makespan
    assert (of.waterfall.residual, of.waterfall.deviation) == (0, 0)
    assert of.waterfall.of(Part.COMPUTE) == measured.makespan - of.waterfall.base
    (fault,) = of.found.faults
    assert fault.names == ("all all-to-alls",)
    assert fault.amount == pytest.approx(1.6)
    assert fault.effect == measured.makespan - of.waterfall.base
    free = {row.name: row for row in of.what_if}["all-to-all hidden"]
    assert free.makespan == simulate(schedule, layer(0)).makespan
    slips = of.slips
    assert np.array_equal(slips.slip, slips.growth + slips.predecessor_slip + slips.transfer + slips.gap - slips.slack)
    for waits in of.waits:
        for rank, busy in waits.busy.items():
            assert busy + sum(waits.of(rank).values()) == waits.makespan


def test_other_orders_and_schedules_run_the_same_layers() -> None:
    schedule, costs = parts(MoeOrder.ALIGNED), layer(0.5, 0)
    of = Analysis(diff(simulate(schedule, costs), simulate(schedule, costs)), schedule, costs, fitted=True)
    rows = {row.name: row for row in of.other_schedules}
    makespans = {order: simulate(parts(order), costs).makespan for order in (MoeOrder.ALIGNED, MoeOrder.SERIAL)}
    for order, makespan in makespans.items():
        row = rows[f"dualpipev in {order}"]
        assert (row.makespan, row.saved) == (makespan, makespans[MoeOrder.ALIGNED] - makespan)
    # Four layers on each of two ranks: in one stage of four, or two of two; of a schedule with pairs the best order.
    plain = simulate(expand_moe(build("1f1b", 2, 6), Overlap(MoeOrder.SERIAL, 4)), costs)
    assert rows["1f1b"].makespan == plain.makespan
    assert len([name for name in rows if name.startswith("moe-1f1b in ")]) == 1
    assert list(rows) == sorted(rows, key=lambda name: rows[name].makespan)


def test_layers_that_differ_are_an_imbalance() -> None:
    schedule = parts(MoeOrder.MEGATRON)
    unit = layer().layer
    assert unit is not None
    slow = Costs(layer=unit, stage_layers={2: replace(unit, mlp=PartCosts(3 * MS, 3 * MS, 3 * MS))})
    of = Analysis(diff(simulate(schedule, layer()), simulate(schedule, slow)), schedule, layer())
    assert of.references is not None
    assert of.references.imbalance > 0
    assert of.references.overhead == 0
    balanced = balanced_costs(of.fitted_costs)
    assert of.references.schedule + of.references.work == simulate(schedule, balanced).makespan
    assert balanced.layer_of(1).mlp == PartCosts(MS * 3 // 2, MS * 3 // 2, MS * 9 // 8)
