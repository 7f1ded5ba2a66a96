from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import NO_ACTION
from pipetrace.costs import Costs, PairCost, RunCosts, StageCosts
from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe, split_backward, stage_costs, stage_schedule
from pipetrace.placement import Placement
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane
from pipetrace.waiting import Wait, Waiting
from tests.passes.test_expand_moe import MS, layer, layer_costs, part_times, run_of
from tests.strategies import Sizes, sizes
from tests.test_schedule import of


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


def by_stage(given: list[LayerCosts], stages: int) -> dict[int, LayerCosts]:
    """Layers of their own for some stages: those of the others are the default's."""
    return {stage: given[stage % len(given)] for stage in range(stages if given else 0) if stage % 3 or len(given) > 2}


@settings(max_examples=80, deadline=None)
@given(
    sizes(ranks=5, microbatches=10),
    st.sampled_from([MoeOrder.SERIAL, MoeOrder.ALIGNED, MoeOrder.MEGATRON]),
    st.integers(1, 3),
    layer_costs,
    st.lists(layer_costs, max_size=4),
    st.just(0) | part_times,
    st.booleans(),
)
def test_both_grains_agree(
    size: Sizes, order: MoeOrder, layers: int, default: LayerCosts, own: list[LayerCosts], p2p: int, split: bool
) -> None:
    check_grains(size, Overlap(order, layers), default, own, p2p, split)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["dualpipe", "dualpipev", "moe-1f1b"]),
    st.integers(1, 4),
    st.integers(0, 6),
    st.builds(Overlap, st.sampled_from([MoeOrder.SERIAL, MoeOrder.ALIGNED, MoeOrder.MEGATRON]), st.integers(1, 3)),
    layer_costs,
    st.lists(layer_costs, min_size=1, max_size=4),
    st.just(0) | part_times,
)
def test_both_grains_agree_where_there_are_pairs(
    name: str, half: int, more: int, overlap: Overlap, default: LayerCosts, own: list[LayerCosts], p2p: int
) -> None:
    """The three schedules that pair a forward with a backward, with the layers of single stages their own."""
    ranks = 2 * half if name == "dualpipe" else half
    size = Sizes(name, ranks, 2 * ranks + 2 * more, {"chunks": 1 + more % 3} if name == "moe-1f1b" else {})
    assert (size.build().partner != NO_ACTION).any()
    check_grains(size, overlap, default, own, p2p, split=False)


def check_grains(
    size: Sizes, overlap: Overlap, default: LayerCosts, own: list[LayerCosts], p2p: int, split: bool
) -> None:
    schedule = split_backward(size.build()) if split else size.build()
    costs = Costs(layer=default, stage_layers=by_stage(own, schedule.stages), p2p=p2p)
    stages, of_stages = stage_schedule(schedule, overlap), stage_costs(costs, overlap, schedule)
    expanded, inline = expand_moe(schedule, overlap, costs), Waiting(Wait.INLINE)
    assert simulate(stages, of_stages, inline).makespan == simulate(expanded, costs, inline).makespan
    in_parts, whole = simulate(expanded, costs), simulate(stages, of_stages)
    assert whole.makespan == in_parts.makespan
    # Not only the last: every stage's last part ends when the stage does.
    for rank in range(schedule.ranks):
        ends = [int(of.where((of.rank == rank) & (of.lane <= Lane.ALL_TO_ALL)).end.max()) for of in (whole, in_parts)]
        assert ends[0] == ends[1]


def test_stages_with_layers_of_their_own() -> None:
    """By hand: 2 layers of attn, dispatch, mlp, combine 1/1/1/1, and on stage 1 an mlp of F 3, I 4, W 5."""
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


def test_pairs_of_two_stages_with_layers_of_their_own() -> None:
    """By hand, one layer in `megatron`: attnF mlpI mlpW mlpF attnI attnW over combB dispF dispB combF."""
    slow = LayerCosts(mlp=PartCosts(3 * MS, 4 * MS, 5 * MS))
    costs, overlap = Costs(stage_layers={1: slow}), Overlap(MoeOrder.MEGATRON)
    schedule = of(
        "0F0 1F0 (0F1;1B0)OVERLAP_F_B 1F1 0B0 (0F2;1B1)OVERLAP_F_B (1F2;0B1)OVERLAP_F_B 1B2 0B2",
        placement=Placement.loop(1, 2),
        microbatches=3,
    )
    whole = stage_costs(costs, overlap, schedule)
    assert whole.pair is not None
    assert ms(whole.pair) == (6, 5, 5)  # type: ignore[arg-type]
    # attnF 0-1, mlpI 1-5, mlpW 5-10, mlpF 10-11, attnI 11-12, attnW 12-13; dispI and dispF long there, combF 11-12.
    # And the other way round attnF 0-1, mlpI 1-2, mlpW 2-3, mlpF 3-6, attnI 6-7, attnW 7-8, combF 6-7.
    assert {stages: ms(cost) for stages, cost in whole.pairs.items()} == {(0, 1): (13, 12, 12), (1, 0): (8, 7, 7)}  # type: ignore[arg-type]
    in_parts = simulate(expand_moe(schedule, overlap, costs), costs)
    assert simulate(schedule, whole).makespan == in_parts.makespan


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev", "moe-1f1b"])
def test_in_dualpipe_whole_stages_come_close(name: str) -> None:
    """No more is said of this order: a pair begins under the one before, of other stages, and does not wait as one."""
    random = Random(name)

    def own() -> LayerCosts:
        time = [random.randint(500_000, 4_000_000) for _ in range(10)]
        return LayerCosts(PartCosts(*time[:3]), PartCosts(*time[3:5]), PartCosts(*time[5:8]), PartCosts(*time[8:]))

    for microbatches in (8, 16, 24):
        schedule = build(name, 4, microbatches)
        for layers in ({}, {stage: own() for stage in range(schedule.stages)}):
            overlap, costs = Overlap(MoeOrder.DUALPIPE, random.randint(1, 3)), Costs(layer=own(), stage_layers=layers)
            in_parts = simulate(expand_moe(schedule, overlap, costs), costs).makespan
            whole = simulate(schedule, stage_costs(costs, overlap, schedule)).makespan
            assert whole == pytest.approx(in_parts, rel=0.05)
