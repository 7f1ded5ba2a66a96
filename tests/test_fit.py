from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipetrace.action import Kind, code_kind, code_microbatch, code_stage
from pipetrace.costs import Costs, StageCosts
from pipetrace.fit import fit, fit_costs, measured_costs
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import UNKNOWN

HALVED = "the backward was measured whole: I and W are taken as half of it each"


def test_costs_of_a_simulated_run_come_back() -> None:
    given = Costs(stages={s: StageCosts(100 + s, 200 + s, 300 + s) for s in range(3)}, p2p=17)
    schedule = build("zb-h1", 3, 5)
    fitted, assumed = measured_costs([simulate(schedule, given)] * 2)
    assert dict(fitted.stages) == dict(given.stages)
    assert fitted.p2p == 0
    assert assumed == ()


def test_a_stage_that_was_not_measured_costs_the_median_of_the_others() -> None:
    costs = [StageCosts(10, 20, 30), StageCosts(12, 22, 32), StageCosts(50, 60, 70)]
    given = Costs(stages=dict(enumerate(costs)))
    assert fit_costs([simulate(build("zb-h1", 3, 5), given)]).of(7) == StageCosts(12, 22, 32)
    whole = fit_costs([simulate(build("1f1b", 3, 5), given)])
    assert whole.of(7) == StageCosts(12, 27, 27, B=54)


def test_a_backward_that_was_measured_whole_is_halved_and_that_is_said() -> None:
    given = Costs(StageCosts(1, 2, 3, B=7))
    measured = simulate(build("1f1b", 2, 4), given)
    fitted, assumed = measured_costs([measured])
    assert fitted.of(0) == fitted.default == StageCosts(F=1, I=3, W=4, B=7)
    assert assumed == (HALVED,)
    assert fit([measured]).assumed == (HALVED,)
    # A schedule that splits it does a rank's whole work.
    work = 4 * (1 + 7)
    assert simulate(build("zb-h1", 2, 4), fitted).makespan >= work


def test_what_a_stage_lacks_is_said() -> None:
    step = simulate(build("zb-h1", 3, 5), Costs(StageCosts(10, 20, 30), {1: StageCosts(12, 22, 32)}))
    kind, stage = code_kind(step.code), code_stage(step.code)
    fitted, assumed = measured_costs([step.where(~((kind == Kind.F) & (stage == 1)))])
    assert fitted.of(1) == StageCosts(10, 22, 32)
    assert assumed == ("no F of stage 1 was measured: it is taken as the median of the other stages",)
    fitted, assumed = measured_costs([step.where((kind == Kind.F) | (stage != 1))])
    assert fitted.of(1) == StageCosts(12, 20, 30)
    assert assumed == ("no backward of stage 1 was measured: it is taken as the median of the other stages",)
    # A first stage may make no input gradient: none is added to it.
    fitted, assumed = measured_costs([step.where(~((kind == Kind.I) & (stage == 0)))])
    assert fitted.of(0) == StageCosts(10, 0, 30)
    assert assumed == ("no I of stage 0 was measured: it is taken to cost 0",)
    fitted, assumed = measured_costs([step.where(kind == Kind.F)])
    assert fitted.of(2) == StageCosts(10, 0, 0)
    assert assumed == ("no backward was measured: it is taken to cost 0",)


def test_costs_of_parts_come_back() -> None:
    layer = LayerCosts(PartCosts(10, 20, 30), PartCosts(11, 12), PartCosts(40, 50, 60), PartCosts(13, 14))
    given = Costs(stage_layers={0: layer, 1: LayerCosts(PartCosts(1, 2, 3), mlp=PartCosts(4, 5, 6))})
    schedule = expand_moe(build("moe-1f1b", 1, 4), Overlap(MoeOrder.MEGATRON, 2))
    fitted, assumed = measured_costs([simulate(schedule, given)])
    assert fitted.stage_layers == given.stage_layers
    assert assumed == ()
    assert fitted.layer_of(9).attn == PartCosts(5, 11, 16)
    # Whole stages take what the parts of their two layers do; those of a layer are 74, 96, 90 and 186.
    assert fitted.of(0) == StageCosts(2 * 74, 2 * 96, 2 * 90, B=2 * 186)
    assert fitted.default == StageCosts(**fitted.layer_of(9).whole(2))
    whole = expand_moe(build("1f1b", 2, 2), Overlap(MoeOrder.SERIAL))
    fitted, assumed = measured_costs([simulate(whole, given)])
    assert fitted.layer_of(0).attn == PartCosts(10, 25, 25)
    assert assumed == ("the backward was measured whole: I and W of a part are taken as half of it each",)


def test_the_median_ignores_one_slow_step() -> None:
    schedule = build("1f1b", 2, 3)
    steps = [simulate(schedule, Costs(StageCosts(f, 1, 1))) for f in (10, 10, 500)]
    assert fit_costs(steps).of(1).F == 10


def test_only_a_transfer_that_was_awaited_tells_what_it_costs() -> None:
    """A receive whose data were there before ends when it is turned to, be that at once or long after."""
    step = simulate(build("1f1b", 3, 4), Costs(p2p=1_000))
    receives = np.isin(code_kind(step.code), [Kind.RECV_F, Kind.RECV_B])
    picked_up = receives & ~((step.waited != UNKNOWN) & (step.waited <= step.start))
    assert picked_up.any()
    end = np.where(picked_up, step.start + np.where(step.code % 2, 5, 90_000), step.end)
    measured = fit([replace(step, end=end, waited=np.where(picked_up, end, step.waited))])
    assert measured.costs.p2p == 1_000


def test_a_transfer_that_nobody_awaited_costs_what_the_fastest_took() -> None:
    step = simulate(build("1f1b", 3, 4), Costs(p2p=1_000))
    late = np.where(code_kind(step.code) == Kind.RECV_F, np.arange(len(step)) * 10_000, 0)
    first = (code_kind(step.code) == Kind.RECV_F) & (code_microbatch(step.code) == 0)
    end = step.end + np.where(first, 0, late)
    measured = fit([replace(step, end=end, waited=np.where(step.waited == UNKNOWN, UNKNOWN, end))])
    assert measured.transfers is not None
    assert measured.transfers.fastest == measured.costs.p2p == 1_000
    assert measured.transfers_between[0, 1].median > 1_000
    # What seems fast one way and slow the other, for the clocks are apart, is neither.
    ahead = np.where(np.isin(code_kind(step.code), [Kind.RECV_F]), 400, 0)
    ahead = np.where(np.isin(code_kind(step.code), [Kind.RECV_B]), -400, ahead)
    assert fit([replace(step, end=step.end + ahead)]).costs.p2p == 1_000
    assert fit([step], common_clock=False).costs.p2p == 0
