from __future__ import annotations

from pipetrace.action import parse
from pipetrace.costs import Costs
from pipetrace.lanes import fenced_pairs, lane_times
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule

UNIT = Costs(layer=LayerCosts(*(PartCosts(10, 10, w) for w in (10, 0, 10, 0))), p2p=3)


def listed(*ranks: str, microbatches: int) -> Schedule:
    """Rows of actions, one a rank, `|` for a fence."""
    orders = []
    for text in ranks:
        order = RankOrder()
        for word in text.split():
            if word == "|":
                order.fence()
            else:
                order.append(parse(word))
        orders.append(order)
    return Schedule.from_orders("by hand", Placement.loop(len(ranks)), microbatches, orders)


def forward(stage: int, microbatch: int) -> str:
    return " ".join(f"{stage}F{microbatch}@0.{part}" for part in ("attn", "dispatch", "mlp", "combine"))


def backward(stage: int, microbatch: int) -> str:
    return " ".join(f"{stage}B{microbatch}@0.{part}" for part in ("combine", "mlp", "dispatch", "attn"))


def test_a_row_waits_for_its_lane_and_its_input() -> None:
    times = lane_times(
        listed(f"{forward(0, 0)} {forward(0, 1)} {backward(0, 0)} {backward(0, 1)}", microbatches=2), UNIT
    )
    # The second forward's attention starts under the first one's combine; its dispatch waits for that.
    assert times.start[:8].tolist() == [0, 10, 20, 30, 30, 40, 50, 60]
    assert times.there[:8].tolist() == [0, 10, 20, 30, 0, 40, 50, 60]


def test_nothing_passes_a_fence() -> None:
    fenced = listed(f"{forward(0, 0)} | {forward(0, 1)} | {backward(0, 0)} | {backward(0, 1)}", microbatches=2)
    times = lane_times(fenced, UNIT)
    assert times.start[:8].tolist() == [0, 10, 20, 30, 40, 50, 60, 70]
    # What held the second forward up was its rank, to 30 its lane and to 40 the other.
    assert times.idle_since[4] == 40


def test_a_receive_that_is_posted_where_it_is_used_comes_later() -> None:
    schedule = listed(
        f"{forward(0, 0)} {forward(0, 1)} {backward(0, 0)} {backward(0, 1)}",
        f"{forward(1, 0)} {forward(1, 1)} {backward(1, 0)} {backward(1, 1)}",
        microbatches=2,
    ).validate()
    first = int(schedule.first[1])
    ahead, used = lane_times(schedule, UNIT), lane_times(schedule, UNIT, ahead=False)
    # Rank 1 stood ready for the first; for the second its compute lane was busy until 73, when that had just come.
    assert ahead.start[first : first + 5].tolist() == [43, 53, 63, 73, 73]
    assert used.start[first : first + 5].tolist() == [43, 53, 63, 73, 76]
    assert used.posted[first : first + 5].tolist() == [0, 0, 0, 0, 73]
    assert not ahead.posted.any()


def test_a_fenced_pair_posts_both_receives_at_the_fence() -> None:
    pair = "1B0@0.combine 1F1@0.attn 1F1@0.dispatch 1B0@0.mlp 1B0@0.dispatch 1F1@0.mlp 1F1@0.combine 1B0@0.attn"
    schedule = listed(
        f"{forward(0, 0)} {forward(0, 1)} {backward(0, 0)} {backward(0, 1)}",
        f"{forward(1, 0)} | {pair} | {backward(1, 1)}",
        f"{forward(2, 0)} {backward(2, 0)} {forward(2, 1)} {backward(2, 1)}",
        microbatches=2,
    ).validate()
    at = int(schedule.first[1]) + 4
    used = lane_times(schedule, UNIT, ahead=False)
    # Both at 83, when stage 1 has done its first forward; the gradient is there last, 3 after 186, when
    # stage 2 had made it: 86 to 126 forward, then a combine of 10, an mlp of 20, a dispatch of 10 and attention of 20.
    assert used.posted[at : at + 2].tolist() == [83, 83]
    assert used.start[at : at + 2].tolist() == [189, 189]
    assert used.there[at : at + 2].tolist() == [189, 86]


def test_a_fenced_pair_waits_for_both_inputs() -> None:
    pair = "0B0@0.combine 0F1@0.attn 0F1@0.dispatch 0B0@0.mlp 0B0@0.dispatch 0F1@0.mlp 0F1@0.combine 0B0@0.attn"
    schedule = listed(
        f"{forward(0, 0)} | {pair} | {backward(0, 1)}",
        f"{forward(1, 0)} | {backward(1, 0)} | {forward(1, 1)} | {backward(1, 1)}",
        microbatches=2,
    ).validate()
    assert fenced_pairs(schedule).tolist() == [4]
    times = lane_times(schedule, UNIT)
    # The gradient: 40 forward, 3 there, 40 forward, 60 backward, 3 back. The forward's input was there at once.
    assert times.start[4:6].tolist() == [146, 146]
    # Without the fence the forward does not wait for it.
    assert (
        lane_times(
            listed(
                f"{forward(0, 0)} {pair} {backward(0, 1)}",
                f"{forward(1, 0)} {backward(1, 0)} {forward(1, 1)} {backward(1, 1)}",
                microbatches=2,
            ),
            UNIT,
        ).start[5]
        == 30
    )
