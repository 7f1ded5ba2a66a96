from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import (
    Action,
    Kind,
    Pair,
    Part,
    code_microbatch,
    code_part,
    code_stage,
    is_all_to_all,
    parse_action,
)
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import CostError, ScheduleError
from pipetrace.lanes import lane_times
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import (
    After,
    MoeOrder,
    Overlap,
    WeightRule,
    add_communication,
    expand_moe,
    place_weight_gradients,
    split_backward,
)
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Timeline
from pipetrace.times import UNITS
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, sizes
from tests.test_schedule import of

MS = UNITS["ms"]


def layer(attn: float = 1, mlp: float = 1, all_to_all: float = 1, weight: float = 0.5) -> Costs:
    """F = I for every part; W of attention and mlp."""

    def part(time: float, w: float = 0) -> PartCosts:
        return PartCosts(round(time * MS), round(time * MS), round(w * MS))

    a2a = part(all_to_all)
    return Costs(layer=LayerCosts(part(attn, weight), a2a, part(mlp, weight), a2a))


def run_of(pairs: int) -> Schedule:
    """Pairs in a row on one rank: F1 with B0, F2 with B1, and so on; F0 before them, the last B behind."""
    middle = " ".join(f"(0F{i + 1};0B{i})OVERLAP_F_B" for i in range(pairs))
    return of(f"0F0 {middle} 0B{pairs}", microbatches=pairs + 1)


def lanes(timeline: Timeline, *texts: str) -> tuple[str, str]:
    """What the two lanes of rank 0 do for some microbatches (`F1`, `B0` or `I0` with its W), from their start on."""
    tiles = [
        tile
        for tile in timeline
        if isinstance(tile.action, Action)
        and f"{'I' if tile.action.kind is Kind.W else tile.action.kind.name}{tile.action.microbatch}" in texts
    ]
    zero = min(tile.start for tile in tiles)
    rows: dict[Lane, list[str]] = {Lane.COMPUTE: [], Lane.ALL_TO_ALL: []}
    for tile in tiles:
        action = tile.action
        assert isinstance(action, Action)
        assert action.part is not None
        name = f"{action.part.name.lower()[:4]}{action.kind.name}{action.layer}"
        rows[tile.lane].append(f"{name} {(tile.start - zero) / MS:g}-{(tile.end - zero) / MS:g}")
    return ", ".join(rows[Lane.COMPUTE]), ", ".join(rows[Lane.ALL_TO_ALL])


ONE_PAIR = {
    MoeOrder.SERIAL: (
        "attnF0 0-1, mlpF0 2-3, mlpB0 5-6.5, attnB0 7.5-9",
        "dispF0 1-2, combF0 3-4, combB0 4-5, dispB0 6.5-7.5",
    ),
    MoeOrder.ALIGNED: (
        "attnF0 0-1, mlpB0 1-2.5, mlpF0 2.5-3.5, attnB0 3.5-5",
        "combB0 0-1, dispF0 1-2, dispB0 2.5-3.5, combF0 3.5-4.5",
    ),
    MoeOrder.MEGATRON: (
        "attnF0 0-1, mlpI0 1-2, mlpW0 2-2.5, mlpF0 2.5-3.5, attnI0 3.5-4.5, attnW0 4.5-5",
        "combI0 0-1, dispF0 1-2, dispI0 2-3, combF0 3.5-4.5",
    ),
    MoeOrder.DUALPIPE: (
        "attnF0 0-1, mlpI0 1-2, mlpF0 2-3, mlpW0 3-3.5, attnI0 3.5-4.5, attnW0 4.5-5",
        "combI0 0-1, dispF0 1-2, dispI0 2-3, combF0 3-4",
    ),
}

THREE_LAYERS = {
    MoeOrder.SERIAL: (
        "attnF0 0-1, mlpF0 2-3, attnF1 4-5, mlpF1 6-7, attnF2 8-9, mlpF2 10-11, "
        "mlpB2 13-14.5, attnB2 15.5-17, mlpB1 18-19.5, attnB1 20.5-22, mlpB0 23-24.5, attnB0 25.5-27",
        "dispF0 1-2, combF0 3-4, dispF1 5-6, combF1 7-8, dispF2 9-10, combF2 11-12, "
        "combB2 12-13, dispB2 14.5-15.5, combB1 17-18, dispB1 19.5-20.5, combB0 22-23, dispB0 24.5-25.5",
    ),
    MoeOrder.ALIGNED: (
        "attnF0 0-1, mlpB2 1-2.5, mlpF0 2.5-3.5, attnB2 3.5-5, "
        "attnF1 5-6, mlpB1 6-7.5, mlpF1 7.5-8.5, attnB1 8.5-10, "
        "attnF2 10-11, mlpB0 11-12.5, mlpF2 12.5-13.5, attnB0 13.5-15",
        "combB2 0-1, dispF0 1-2, dispB2 2.5-3.5, combF0 3.5-4.5, "
        "combB1 5-6, dispF1 6-7, dispB1 7.5-8.5, combF1 8.5-9.5, "
        "combB0 10-11, dispF2 11-12, dispB0 12.5-13.5, combF2 13.5-14.5",
    ),
    # The combine of the next layer's backward runs under the W of attention, which a full B does not leave free.
    MoeOrder.MEGATRON: (
        "attnF0 0-1, mlpI2 1-2, mlpW2 2-2.5, mlpF0 2.5-3.5, attnI2 3.5-4.5, attnW2 4.5-5, "
        "attnF1 5-6, mlpI1 6-7, mlpW1 7-7.5, mlpF1 7.5-8.5, attnI1 8.5-9.5, attnW1 9.5-10, "
        "attnF2 10-11, mlpI0 11-12, mlpW0 12-12.5, mlpF2 12.5-13.5, attnI0 13.5-14.5, attnW0 14.5-15",
        "combI2 0-1, dispF0 1-2, dispI2 2-3, combF0 3.5-4.5, "
        "combI1 4.5-5.5, dispF1 6-7, dispI1 7-8, combF1 8.5-9.5, "
        "combI0 9.5-10.5, dispF2 11-12, dispI0 12-13, combF2 13.5-14.5",
    ),
    MoeOrder.DUALPIPE: (
        "attnF0 0-1, mlpI2 1-2, mlpF0 2-3, mlpW2 3-3.5, attnI2 3.5-4.5, attnW2 4.5-5, "
        "attnF1 5-6, mlpI1 6-7, mlpF1 7-8, mlpW1 8-8.5, attnI1 8.5-9.5, attnW1 9.5-10, "
        "attnF2 10-11, mlpI0 11-12, mlpF2 12-13, mlpW0 13-13.5, attnI0 13.5-14.5, attnW0 14.5-15",
        "combI2 0-1, dispF0 1-2, dispI2 2-3, combF0 3-4, "
        "combI1 4.5-5.5, dispF1 6-7, dispI1 7-8, combF1 8-9, "
        "combI0 9.5-10.5, dispF2 11-12, dispI0 12-13, combF2 13-14",
    ),
}


@pytest.mark.parametrize("order", list(MoeOrder))
@pytest.mark.parametrize(("layers", "expected"), [(1, ONE_PAIR), (3, THREE_LAYERS)])
def test_a_pair_by_hand(order: MoeOrder, layers: int, expected: dict[MoeOrder, tuple[str, str]]) -> None:
    """attn = mlp = dispatch = combine = 1 for F and I, W = 0.5 each."""
    costs = layer()
    timeline = simulate(expand_moe(run_of(1), Overlap(order, layers), costs), costs)
    assert lanes(timeline, "F1", "I0" if Overlap(order).splits else "B0") == expected[order]


def test_consecutive_pairs_by_hand() -> None:
    """The next pair's first combine and attention run in the block of the pair ahead, after its combine has left."""
    costs = layer()
    timeline = simulate(expand_moe(run_of(3), Overlap(MoeOrder.DUALPIPE), costs), costs)
    assert lanes(timeline, "F1", "I0", "F2", "I1") == (
        "attnF0 0-1, mlpI0 1-2, mlpF0 2-3, mlpW0 3-3.5, attnI0 3.5-4.5, attnW0 4.5-5, "
        "attnF0 5-6, mlpI0 6-7, mlpF0 7-8, mlpW0 8-8.5, attnI0 8.5-9.5, attnW0 9.5-10",
        "combI0 0-1, dispF0 1-2, dispI0 2-3, combF0 3-4, combI0 4-5, dispF0 6-7, dispI0 7-8, combF0 8-9",
    )


def period(costs: Costs, overlap: Overlap) -> tuple[float, float]:
    """ms from a pair of a run to the next, and from the start of its forward to when that can leave."""
    timeline = simulate(expand_moe(run_of(8), overlap, costs), costs)

    def at(text: str) -> tuple[int, int]:
        tile = timeline.find(parse_action(text))
        assert tile is not None
        return tile.start, tile.end

    begins = [at(f"0F{i}@0.mlp")[0] for i in (4, 5)]
    return (begins[1] - begins[0]) / MS, (at("0F5@0.combine")[1] - at("0F5@0.attn")[0]) / MS


ALIGNED, DUALPIPE = Overlap(MoeOrder.ALIGNED), Overlap(MoeOrder.DUALPIPE)


def test_a_pair_repeats_as_often_as_the_lanes_allow() -> None:
    one = layer()
    assert period(one, Overlap(MoeOrder.SERIAL))[0] == 9
    assert period(one, ALIGNED) == (5, 4.5)
    assert period(one, DUALPIPE) == (5, 4)
    # 1.5 a piece: the all-to-all lane has 6 to do.
    assert [period(layer(all_to_all=1.5), of)[0] for of in (ALIGNED, DUALPIPE)] == [6, 6]
    # Parts that do not match: the compute lane has 5 to do, and some all-to-alls find nothing to hide behind.
    uneven = layer(attn=0.5, mlp=2, weight=0)
    assert [period(uneven, of)[0] for of in (ALIGNED, DUALPIPE)] == [6, 6]


def test_the_forward_leaves_three_into_the_block() -> None:
    costs = layer()
    timeline = simulate(expand_moe(run_of(3), DUALPIPE, costs), costs)
    combine, block = timeline.find(parse_action("0F2@0.combine")), timeline.find(parse_action("0I1@0.mlp"))
    assert combine is not None
    assert block is not None
    assert combine.end - block.start == 3 * MS


def test_the_list_is_what_is_issued() -> None:
    expanded = expand_moe(run_of(2), Overlap(MoeOrder.DUALPIPE))
    text = ["| " * bool(fence) + str(item) for fence, item in zip(expanded.fences, expanded.actions(0), strict=True)]
    assert " ".join(text) == (
        "0F0@0.attn 0F0@0.dispatch 0F0@0.mlp 0F0@0.combine "
        "| 0I0@0.combine 0F1@0.attn 0F1@0.dispatch 0I0@0.mlp 0I0@0.dispatch 0F1@0.mlp 0F1@0.combine 0W0@0.mlp "
        "0I0@0.attn 0I1@0.combine 0W0@0.attn 0F2@0.attn "
        "0F2@0.dispatch 0I1@0.mlp 0I1@0.dispatch 0F2@0.mlp 0F2@0.combine 0W1@0.mlp 0I1@0.attn 0W1@0.attn "
        "| 0B2@0.combine 0B2@0.mlp 0B2@0.dispatch 0B2@0.attn"
    )


def test_what_is_not_there_is_not_issued_early() -> None:
    """On rank 0 the gradient of the second pair comes late: its combine stays where it is, its attention goes ahead."""
    schedule = of(
        "0F0 0F1 (0F2;0B0)OVERLAP_F_B (0F3;0B1)OVERLAP_F_B 0B2 0B3 | 1F0 1B0 1F1 1F2 1B1 1F3 1B2 1B3", microbatches=4
    )
    lists = [str(item) for item in expand_moe(schedule).actions(0)]
    assert lists.index("0W0@0.attn") < lists.index("0F3@0.attn") < lists.index("0I1@0.combine")
    fast = layer(0.1, 0.1, 0.1, 0.1).layer
    assert fast is not None
    lists = [str(item) for item in expand_moe(schedule, costs=Costs(stage_layers={1: fast})).actions(0)]
    assert lists.index("0I1@0.combine") < lists.index("0W0@0.attn")


def test_a_full_backward_can_stay_whole() -> None:
    expanded = expand_moe(run_of(1), Overlap(MoeOrder.DUALPIPE, split=False))
    assert not (expanded.code & 31 == Kind.W).any()
    costs = layer()
    assert lanes(simulate(expanded, costs), "F1", "B0") == (
        "attnF0 0-1, mlpB0 1-2.5, mlpF0 2.5-3.5, attnB0 3.5-5",
        "combB0 0-1, dispF0 1-2, dispB0 2.5-3.5, combF0 3.5-4.5",
    )


def test_weight_gradients_run_where_they_are_put() -> None:
    def compute(mlp: After, attn: After, layers: int = 1) -> str:
        overlap = Overlap(MoeOrder.DUALPIPE, layers, mlp_weight=mlp, attn_weight=attn)
        lane, _ = lanes(simulate(expand_moe(run_of(1), overlap)), "F1", "I0")
        return " ".join(item.split()[0] for item in lane.split(", "))

    assert compute(After.MLP_I, After.ATTN_I) == "attnF0 mlpI0 mlpW0 mlpF0 attnI0 attnW0"
    assert compute(After.ATTN_I, After.ATTN_I) == "attnF0 mlpI0 mlpF0 attnI0 mlpW0 attnW0"
    assert (
        compute(After.END, After.END, 2)
        == "attnF0 mlpI1 mlpF0 attnI1 attnF1 mlpI0 mlpF1 attnI0 mlpW1 attnW1 mlpW0 attnW0"
    )
    assert compute(After.ATTN_F, After.MLP_F, 2) == (
        "attnF0 mlpI1 mlpF0 attnI1 attnF1 mlpW1 mlpI0 mlpF1 attnW1 attnI0 mlpW0 attnW0"
    )


def test_where_weights_go_needs_weights() -> None:
    with pytest.raises(ScheduleError, match="aligned with a full backward has none"):
        Overlap(MoeOrder.ALIGNED, mlp_weight=After.MLP_F)
    with pytest.raises(ScheduleError, match="stages of 0 layers"):
        Overlap(layers=0)


def test_only_whole_stages_without_communication_are_expanded() -> None:
    schedule = build("1f1b", 2, 4)
    with pytest.raises(ScheduleError, match="in parts of layers already"):
        expand_moe(expand_moe(schedule))
    with pytest.raises(ScheduleError, match="lists its sends"):
        expand_moe(add_communication(schedule))


@pytest.mark.parametrize(
    "other", [split_backward, add_communication, lambda schedule: place_weight_gradients(schedule, WeightRule.AT_ONCE)]
)
def test_expanding_comes_last(other: Callable[[Schedule], Schedule]) -> None:
    with pytest.raises(ScheduleError, match="which this pass does not know"):
        other(expand_moe(build("zb-h1", 2, 4)))


def test_other_ways_of_waiting_and_recompute_are_refused() -> None:
    expanded = expand_moe(build("1f1b", 2, 4))
    for waiting in (Waiting(Wait.DATAFLOW), Waiting(ordered=True), Waiting(Wait.INLINE, post=1), Waiting(spin=0.5)):
        with pytest.raises(ScheduleError, match="order on two lanes is fixed"):
            simulate(expanded, waiting=waiting)
    in_order = simulate(expanded, waiting=Waiting(Wait.DATAFLOW, reorder=False))
    assert in_order.makespan == simulate(expanded).makespan
    with pytest.raises(CostError, match="recompute is a cost of whole stages"):
        simulate(expanded, Costs(default=StageCosts(1, 1, 1, recompute=1)))


part_times = st.integers(0, 3 * MS)
layer_costs = st.builds(
    LayerCosts,
    attn=st.builds(PartCosts, part_times, part_times, part_times),
    dispatch=st.builds(PartCosts, part_times, part_times),
    mlp=st.builds(PartCosts, part_times, part_times, part_times),
    combine=st.builds(PartCosts, part_times, part_times),
)
overlaps = st.builds(Overlap, st.sampled_from(MoeOrder), st.integers(1, 3), st.booleans())


@settings(max_examples=60)
@given(sizes(ranks=5, microbatches=10), overlaps, layer_costs, st.just(0) | part_times, st.booleans())
def test_any_schedule_can_be_expanded(
    size: Sizes, overlap: Overlap, of_layer: LayerCosts, p2p: int, split: bool
) -> None:
    schedule = split_backward(size.build()) if split else size.build()
    costs = Costs(layer=of_layer, p2p=p2p)
    expanded = expand_moe(schedule, overlap, costs).validate()
    timeline = simulate(expanded, costs)

    # Every chunk's parts are there, and each comes after what it needs.
    work = [item for rank in range(schedule.ranks) for item in schedule.actions(rank)]
    assert len(expanded) >= (len(work) + sum(isinstance(item, Pair) for item in work)) * 2 * overlap.layers
    links, times = expanded.links, lane_times(expanded, costs)
    for column in (links.inputs, links.gradients, links.local):
        needs = np.flatnonzero(column >= 0)
        crosses = expanded.rank[needs] != expanded.rank[column[needs]]
        assert (times.start[needs] >= times.end[column[needs]] + p2p * crosses).all()
    # Each lane does one thing at a time, in list order; nothing passes a fence.
    for rank in range(schedule.ranks):
        mine = np.flatnonzero(expanded.rank == rank)
        for lane in (False, True):
            rows = mine[is_all_to_all(expanded.code[mine]) == lane]
            assert (times.start[rows[1:]] >= times.end[rows[:-1]]).all()
        for row in mine[expanded.fences[mine]].tolist():
            before, after = mine[mine < row], mine[mine >= row]
            assert times.start[after].min() >= times.end[before].max()
    computes = timeline.where(timeline.lane <= Lane.ALL_TO_ALL)
    assert ((computes.lane == Lane.ALL_TO_ALL) == is_all_to_all(computes.code)).all()
    # What is issued early moves no time: where slow transfers let nothing be issued early, the lanes run the same.
    late = expand_moe(schedule, overlap, replace(costs, p2p=1000 * MS))
    for lane in (False, True):
        assert np.array_equal(*(of.code[is_all_to_all(of.code) == lane] for of in (expanded, late)))
    assert simulate(late, costs).makespan == timeline.makespan


def test_what_leaves_a_stage_is_named_by_the_stage() -> None:
    costs = Costs(p2p=MS)
    expanded = expand_moe(build("1f1b", 2, 2), Overlap(MoeOrder.SERIAL, 2), costs)
    timeline = simulate(expanded, costs)
    for send, made_by in (("0SEND_F1", "0F1@1.combine"), ("1SEND_B0", "1B0@0.attn")):
        tile, producer = timeline.find(parse_action(send)), timeline.find(parse_action(made_by))
        assert tile is not None
        assert producer is not None
        assert (tile.posted, tile.start, tile.end) == (producer.end, producer.end, producer.end + MS)
    assert set(Part) == set(code_part(timeline.code).tolist()) - {0}
    assert set(code_stage(timeline.code).tolist()) == {0, 1}
    assert set(code_microbatch(timeline.code).tolist()) == {0, 1}


def test_an_overlap_by_its_text() -> None:
    assert Overlap("serial") == Overlap(MoeOrder.SERIAL)  # type: ignore[arg-type]
    schedule = build("dualpipev", 2, 4)
    for order in MoeOrder:
        assert expand_moe(schedule, Overlap(str(order))).same_order(expand_moe(schedule, Overlap(order)))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="unknown order of an overlap 'best'"):
        Overlap("best")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="unknown mlp_weight of an overlap 'later'"):
        Overlap(mlp_weight="later")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"of 1\.5 layers"):
        Overlap(layers=1.5)  # type: ignore[arg-type]
