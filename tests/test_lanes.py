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
