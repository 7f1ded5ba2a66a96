from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.costs import Costs, PairCost, RunCosts, StageCosts
from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe, split_backward, stage_costs, stage_schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.passes.test_expand_moe import MS, layer, layer_costs, part_times, run_of
from tests.strategies import Sizes, sizes


def ms(costs: StageCosts | PairCost) -> tuple[float, ...]:
    names = ("F", "I", "W", "B") if isinstance(costs, StageCosts) else ("duration", "forward_ready", "backward_ready")
    return tuple(getattr(costs, name) / MS for name in names)


def test_of_one_layer_by_hand() -> None:
    """attn = mlp = dispatch = combine = 1 for F and I, W = 0.5 each."""
    costs = {order: stage_costs(layer(), Overlap(order)) for order in MoeOrder}
    assert {ms(of.default) for of in costs.values()} == {(4, 4, 1, 5)}
    for order, expected in (
        (MoeOrder.SERIAL, (9, 4, 9)),
        (MoeOrder.ALIGNED, (5, 4.5, 5)),
        (MoeOrder.MEGATRON, (5, 4.5, 4.5)),
    ):
        pair = costs[order].pair
        assert isinstance(pair, PairCost)
        assert ms(pair) == expected
    run = costs[MoeOrder.DUALPIPE].pair
    assert isinstance(run, RunCosts)
    # The first has a prologue of 1 before its block, and does the next one's; the last does not.
    assert [ms(pair) for pair in (run.alone, run.first, run.inner, run.last)] == [
        (5, 4, 4.5),
        (6, 4, 4.5),
        (5, 3, 3.5),
        (4, 3, 3.5),
    ]


def test_a_pair_costs_by_its_place_in_the_run() -> None:
    """dualpipe on one rank: what is simulated in whole stages is what the run takes in parts."""
    costs, overlap = layer(), Overlap(MoeOrder.DUALPIPE, 2)
    whole = stage_costs(costs, overlap)
    for pairs in (1, 2, 3, 9):
        schedule = run_of(pairs)
        in_parts = simulate(expand_moe(schedule, overlap, costs), costs)
        assert simulate(schedule, whole).makespan == in_parts.makespan


@settings(max_examples=60)
@given(
    sizes(ranks=5, microbatches=10),
    st.sampled_from([MoeOrder.SERIAL, MoeOrder.ALIGNED, MoeOrder.MEGATRON]),
    st.integers(1, 3),
    layer_costs,
    st.just(0) | part_times,
    st.booleans(),
)
def test_both_grains_agree(
    size: Sizes, order: MoeOrder, layers: int, of_layer: LayerCosts, p2p: int, split: bool
) -> None:
    schedule = split_backward(size.build()) if split else size.build()
    overlap, costs = Overlap(order, layers), Costs(layer=of_layer, p2p=p2p)
    in_parts = simulate(expand_moe(schedule, overlap, costs), costs)
    whole = simulate(stage_schedule(schedule, overlap), stage_costs(costs, overlap, split_pairs=split))
    assert whole.makespan == in_parts.makespan


def test_stages_with_layers_of_their_own() -> None:
    slow = LayerCosts(mlp=PartCosts(3 * MS, 4 * MS, 5 * MS))
    costs = Costs(stage_layers={1: slow}, p2p=MS)
    whole = stage_costs(costs, Overlap(MoeOrder.SERIAL, 2))
    assert ms(whole.of(1)) == (12, 14, 12, 26)
    schedule = build("1f1b", 2, 5)
    in_parts = simulate(expand_moe(schedule, Overlap(MoeOrder.SERIAL, 2), costs), costs)
    assert simulate(schedule, whole).makespan == in_parts.makespan


def test_recompute_is_refused() -> None:
    with pytest.raises(CostError, match="recompute is a cost of whole stages"):
        stage_costs(Costs(default=StageCosts(1, 1, 1, recompute=2)), Overlap())
