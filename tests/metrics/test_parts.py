"""Schedules in parts of layers, as the other metrics see them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import Action, parse_action
from pipetrace.costs import Costs
from pipetrace.metrics import Cause, bindings, bubbles, gaps, path_of, peak_in_flight, peak_in_flight_of, sums_of
from pipetrace.part_costs import LayerCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.passes.test_expand_moe import MS, layer, layer_costs, overlaps, part_times
from tests.strategies import Sizes, sizes


@settings(max_examples=50)
@given(sizes(ranks=4, microbatches=8), overlaps, layer_costs, st.just(0) | part_times)
def test_every_idle_ns_has_a_cause(size: Sizes, overlap: Overlap, of_layer: LayerCosts, p2p: int) -> None:
    costs = Costs(layer=of_layer, p2p=p2p)
    whole = size.build()
    schedule = expand_moe(whole, overlap, costs)
    timeline = simulate(schedule, costs)
    of = bindings(schedule, timeline, costs)
    by_cause = sums_of(of)
    # An ideal explains all, without the host.
    assert tuple(map(sum, zip(*by_cause.values(), strict=True))) == bubbles(timeline).global_idle
    assert not any(by_cause[Cause.HOST])
    assert all(step.delay == 0 or step.transfer or p2p for step in path_of(of))


def test_what_a_rank_waits_for() -> None:
    """serial: compute waits for its own all-to-alls; the first combine of a backward waits for the gradient."""
    costs = layer()
    schedule = expand_moe(build("1f1b", 2, 2), Overlap(MoeOrder.SERIAL), costs)
    found = [gap for gap in gaps(schedule, simulate(schedule, costs), costs=costs) if gap.rank == 0]
    assert [(gap.start // MS, gap.end // MS, gap.cause, gap.action_after) for gap in found[:4]] == [
        (1, 2, Cause.LOCAL, parse_action("0F0@0.mlp")),
        (3, 4, Cause.LOCAL, parse_action("0F1@0.attn")),
        (5, 6, Cause.LOCAL, parse_action("0F1@0.mlp")),
        # The combine of F1 runs to 8, but what is waited for is the gradient, which comes later.
        (7, 13, Cause.GRADIENT, parse_action("0B0@0.combine")),
    ]
    # The second's input, of the first stage, is there at once: what it comes after is the combine of the tile before.
    assert str(found[1]) == "rank 0 waits for F0 of stage 0 (combine of layer 0) on rank 0"
    assert found[3].awaits == parse_action("1B0@0.attn")


def test_activations_are_held_for_whole_stages() -> None:
    whole = build("zb-h1", 3, 6)
    schedule = expand_moe(whole, Overlap(MoeOrder.MEGATRON, 2))
    assert peak_in_flight_of(simulate(schedule)) == peak_in_flight(whole)
    assert all(isinstance(tile.action, Action) for tile in simulate(schedule))
