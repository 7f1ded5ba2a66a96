from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap
from pipetrace.passes.steady_pair import SteadyPair, hides_up_to, steady_pair, with_ratio, with_weight_share
from tests.passes.test_expand_moe import MS, layer, overlaps


def of(attn: float = 1, mlp: float = 1, all_to_all: float = 1, weight: float = 0.5) -> LayerCosts:
    costs = layer(attn, mlp, all_to_all, weight).layer
    assert costs is not None
    return costs


def test_the_steady_pair() -> None:
    assert steady_pair(of(), Overlap(MoeOrder.SERIAL)) == SteadyPair(9 * MS, 5 * MS, 4 * MS)
    assert steady_pair(of(), Overlap(MoeOrder.DUALPIPE, 3)) == SteadyPair(15 * MS, 15 * MS, 12 * MS)
    uneven = steady_pair(of(0.5, 2, 1, 0), Overlap(MoeOrder.ALIGNED))
    assert (uneven.period, uneven.exposed, uneven.ratio) == (6 * MS, MS, 0.8)


def test_all_to_alls_are_scaled_together() -> None:
    scaled = with_ratio(of(), 0.4)
    half = PartCosts(MS // 2, MS // 2)
    assert (scaled.dispatch, scaled.combine, scaled.mlp) == (half, half, of().mlp)
    assert with_ratio(of(all_to_all=0), 0.8) == of()


def test_the_backward_is_split_elsewhere() -> None:
    split = with_weight_share(of(), 0.25)
    assert split.attn == PartCosts(MS, 1_125_000, 375_000)
    assert with_weight_share(of(), 1 / 3) == of()


def test_up_to_where_all_is_hidden() -> None:
    """By hand, all four all-to-alls x long: aligned has attnF = 1 beside combB, and hides up to x = 1 of 5 computed."""
    assert hides_up_to(of(), Overlap(MoeOrder.SERIAL)) == 0
    assert hides_up_to(of(), Overlap(MoeOrder.ALIGNED)) == 0.8
    assert hides_up_to(of(), Overlap(MoeOrder.DUALPIPE)) == 0.8
    # attn 0.5: combB hides behind no more than that.
    assert hides_up_to(of(0.5, 2, 1, 0), Overlap(MoeOrder.ALIGNED)) == 0.4
    # mlp twice as long as attention, W as long as I: dualpipe hides all that the lane can carry, aligned half of it.
    assert hides_up_to(of(1, 2, 1, 1), Overlap(MoeOrder.ALIGNED)) == 0.5
    assert hides_up_to(of(1, 2, 1, 1), Overlap(MoeOrder.DUALPIPE)) == 1.0


times = st.integers(1, 5).map(lambda quarters: quarters / 4)


@settings(max_examples=30, deadline=None)
@given(times, times, times, overlaps)
def test_more_all_to_all_never_makes_it_shorter(attn: float, mlp: float, weight: float, overlap: Overlap) -> None:
    base, before = of(attn, mlp, 1, weight), 0
    limit = hides_up_to(base, overlap)
    for ratio in sorted((0.0, limit, limit + 0.002, 1.0, 1.5)):
        pair = steady_pair(with_ratio(base, ratio), overlap)
        assert pair.period >= max(before, pair.compute, pair.all_to_all - 4)
        before = pair.period
        if ratio <= limit:
            assert pair.exposed == 0
        elif ratio <= 1:
            assert pair.exposed > 0
