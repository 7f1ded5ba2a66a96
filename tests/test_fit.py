from __future__ import annotations

from pipetrace.costs import Costs, StageCosts
from pipetrace.fit import fit_costs
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedules import build
from pipetrace.simulate import simulate


def test_costs_of_a_simulated_run_come_back() -> None:
    given = Costs(stages={s: StageCosts(100 + s, 200 + s, 300 + s) for s in range(3)}, p2p=17)
    schedule = build("zb-h1", 3, 5)
    fitted = fit_costs([simulate(schedule, given)] * 2)
    assert dict(fitted.stages) == dict(given.stages)
    assert fitted.p2p == 0


def test_full_backwards_are_known_as_such() -> None:
    given = Costs(StageCosts(1, 2, 3, B=7))
    fitted = fit_costs([simulate(build("1f1b", 2, 4), given)])
    assert fitted.of(0) == StageCosts(F=1, I=0, W=0, B=7)


def test_costs_of_parts_come_back() -> None:
    layer = LayerCosts(PartCosts(10, 20, 30), PartCosts(11, 12), PartCosts(40, 50, 60), PartCosts(13, 14))
    given = Costs(stage_layers={0: layer, 1: LayerCosts(PartCosts(1, 2, 3), mlp=PartCosts(4, 5, 6))})
    schedule = expand_moe(build("moe-1f1b", 1, 4), Overlap(MoeOrder.MEGATRON, 2))
    assert fit_costs([simulate(schedule, given)]).stage_layers == given.stage_layers
    # A backward that is never split is all I.
    whole = expand_moe(build("1f1b", 2, 2), Overlap(MoeOrder.SERIAL))
    assert fit_costs([simulate(whole, given)]).layer_of(0).attn == PartCosts(10, 50)


def test_the_median_ignores_one_slow_step() -> None:
    schedule = build("1f1b", 2, 3)
    steps = [simulate(schedule, Costs(StageCosts(f, 1, 1))) for f in (10, 10, 500)]
    assert fit_costs(steps).of(1).F == 10
