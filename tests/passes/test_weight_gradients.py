from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import NO_ACTION, Kind, code_kind, with_kind
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import ScheduleError
from pipetrace.metrics import peak_in_flight
from pipetrace.passes import WeightRule, add_communication, place_weight_gradients, split_backward
from pipetrace.passes.lists import entries, with_lists
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.golden import GOLDEN, name_of, order
from tests.strategies import Sizes, costs, sizes
from tests.test_schedule import of


def deeper_1f1b(p: int, m: int) -> Schedule:
    """1F1B with two forwards in its warm-up for each rank behind."""
    orders = []
    for stage in range(p):
        mine, ahead = RankOrder(), min(2 * (p - 1 - stage), m)
        for i in range(m + ahead):
            if i < m:
                mine.F(stage, i)
            if i >= ahead:
                mine.B(stage, i - ahead)
        orders.append(mine)
    return Schedule.from_orders("deeper-1f1b", Placement.loop(p), m, orders).validate()


def joined(schedule: Schedule) -> Schedule:
    """The order of F and I alone, as F and B."""
    lists = []
    for rank in range(schedule.ranks):
        kept = [(code, partner) for code, partner in entries(schedule, rank) if code_kind(code) != Kind.W]
        lists.append([(with_kind(c, Kind.B) if code_kind(c) == Kind.I else c, partner) for c, partner in kept])
    return with_lists(schedule, lists)


def zb_lags(p: int, m: int, ahead: int) -> list[int]:
    """Both lags of the paper's schedules end at m, so that with few microbatches less is between them."""
    return [min(ahead * (p - 1), m) - min(ahead * (p - 1 - rank), m) for rank in range(p)]


SIZES = (st.integers(2, 9), st.integers(1, 24))


@given(*SIZES)
def test_zb_h1_is_1f1b_with_lagged_weight_gradients(p: int, m: int) -> None:
    split = split_backward(build("1f1b", p, m))
    made = place_weight_gradients(split, WeightRule.LAGGED, lag=zb_lags(p, m, 1)).validate()
    assert made.same_order(build("zb-h1", p, m))
    if m >= p:
        assert zb_lags(p, m, 1) == list(range(p))


@given(*SIZES)
def test_zb_h1_is_1f1b_with_weight_gradients_in_its_bubbles(p: int, more: int) -> None:
    split = split_backward(build("1f1b", p, p + more))
    made = place_weight_gradients(split, WeightRule.BUBBLES, caps=p).validate()
    assert made.same_order(build("zb-h1", p, p + more))


@given(*SIZES)
def test_zb_h2_is_a_deeper_1f1b(p: int, m: int) -> None:
    split = split_backward(deeper_1f1b(p, m))
    made = place_weight_gradients(split, WeightRule.LAGGED, lag=zb_lags(p, m, 2)).validate()
    assert made.same_order(build("zb-h2", p, m))


@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 4))
def test_interleaved_zb_from_its_forwards_and_backwards(p: int, m: int, v: int) -> None:
    whole = build("interleaved-zb", p, m, chunks=v)
    backwards = joined(whole).validate()
    assert not (code_kind(backwards.code) == Kind.W).any()
    made = place_weight_gradients(split_backward(backwards), WeightRule.LAGGED, lag=range(p)).validate()
    assert made.same_order(whole)


@pytest.mark.parametrize("key", [key for key in GOLDEN if name_of(key) == "zb-h1" and "ranks" in GOLDEN[key]])
def test_golden_zb_h1(key: str) -> None:
    p, m = GOLDEN[key]["p"], GOLDEN[key]["m"]
    split = split_backward(build("1f1b", p, m))
    for made in (
        place_weight_gradients(split, WeightRule.LAGGED, lag=range(p)),
        place_weight_gradients(split, WeightRule.BUBBLES, caps=p),
    ):
        for rank in range(p):
            assert list(made.actions(rank)) == order(key, rank)


def test_rules_differ() -> None:
    split = split_backward(build("1f1b", 2, 3))
    rank_1 = {
        "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2": place_weight_gradients(split, WeightRule.AT_ONCE),
        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2": place_weight_gradients(split, WeightRule.LAGGED, lag=1),
        "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2": place_weight_gradients(split, WeightRule.CAPPED, caps=3),
    }
    for text, made in rank_1.items():
        assert " ".join(map(str, made.validate().actions(1))) == text
    # Rank 0 waits 2 for 0I0 and has nothing to fill it with; before 0I2 it waits 1, which holds one W.
    filled = place_weight_gradients(split, WeightRule.BUBBLES)
    assert " ".join(map(str, filled.actions(0))) == "0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2"


def test_a_full_backward_stays_whole() -> None:
    schedule = of("0F0 0B0 0F1 0I1 0W1 0F2 (0F3;0I2)OVERLAP_F_B 0W2 0B3", microbatches=4)
    made = place_weight_gradients(schedule, WeightRule.CAPPED, caps=3).validate()
    assert " ".join(map(str, made.actions(0))) == "0F0 0B0 0F1 0I1 0F2 (0F3;0I2)OVERLAP_F_B 0B3 0W1 0W2"
    made = place_weight_gradients(schedule, WeightRule.CAPPED, caps=2).validate()
    assert " ".join(map(str, made.actions(0))) == "0F0 0B0 0F1 0I1 0F2 0W1 (0F3;0I2)OVERLAP_F_B 0B3 0W2"


def test_sends_leave_before_the_weight_gradient() -> None:
    listed = add_communication(split_backward(build("1f1b", 3, 4)))
    for rule in (WeightRule.AT_ONCE, WeightRule.LAGGED):
        made = place_weight_gradients(listed, rule, lag=1 if rule is WeightRule.LAGGED else None).validate()
        rank_1 = [str(action) for action in made.actions(1)]
        for i, text in enumerate(rank_1):
            if "1I" in text:
                assert rank_1[i + 1] == text.replace("I", "SEND_B")


def test_a_cap_that_is_too_small_says_what_would_do() -> None:
    split = split_backward(build("1f1b", 4, 8))
    with pytest.raises(ScheduleError) as caught:
        place_weight_gradients(split, WeightRule.CAPPED, caps=3)
    assert caught.value.message == (
        "rank 0: a cap of 3 chunks has no room for 0F3: 3 are held, and no weight gradient is left to free one"
    )
    assert caught.value.hint == "this order needs caps of at least 4"
    place_weight_gradients(split, WeightRule.CAPPED, caps=[4, 3, 2, 1]).validate()


@pytest.mark.parametrize(
    ("rule", "arguments", "words"),
    [
        (WeightRule.AT_ONCE, {"lag": 1}, "placed at-once take no lag"),
        (WeightRule.LAGGED, {}, "placed lagged need lag"),
        (WeightRule.LAGGED, {"lag": 1, "caps": 2}, "take no caps"),
        (WeightRule.LAGGED, {"lag": -1}, "lag of -1"),
        (WeightRule.LAGGED, {"lag": [1, 2, 3]}, "3 lag for 2 ranks"),
        (WeightRule.CAPPED, {}, "placed capped need caps"),
        (WeightRule.CAPPED, {"caps": 0}, "caps of 0"),
        (WeightRule.CAPPED, {"caps": 3, "costs": Costs()}, "take no costs"),
    ],
)
def test_arguments_that_do_not_go_together(rule: WeightRule, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        place_weight_gradients(split_backward(build("1f1b", 2, 2)), rule, **arguments)  # type: ignore[arg-type]


@given(sizes(), costs(), st.integers(0, 6), st.data())
def test_only_weight_gradients_move(size: Sizes, given: Costs, lag: int, data: st.DataObject) -> None:
    split = split_backward(size.build())
    at_once = place_weight_gradients(split, WeightRule.AT_ONCE).validate()
    caps = [peak + data.draw(st.integers(0, 5)) for peak in peak_in_flight(at_once).release_at_weight_grad]
    filled = place_weight_gradients(split, WeightRule.BUBBLES, costs=given).validate()
    filled_capped = place_weight_gradients(split, WeightRule.BUBBLES, caps=caps, costs=given).validate()
    capped = place_weight_gradients(split, WeightRule.CAPPED, caps=caps).validate()
    lagged = place_weight_gradients(split, WeightRule.LAGGED, lag=lag).validate()
    for made in (at_once, filled, filled_capped, capped, lagged):
        for rank in range(split.ranks):
            others = [[entry for entry in entries(of, rank) if code_kind(entry[0]) != Kind.W] for of in (split, made)]
            assert others[0] == others[1]
            assert sorted(entries(made, rank)) == sorted(entries(split, rank))
            weights = [code for code, _ in entries(made, rank) if code_kind(code) == Kind.W]
            inputs = [c if p == NO_ACTION else p for c, p in entries(made, rank)]
            assert weights == [code + Kind.W - Kind.I for code in inputs if code_kind(code) == Kind.I]
    for made in (filled_capped, capped):
        assert all(peak <= cap for peak, cap in zip(peak_in_flight(made).release_at_weight_grad, caps, strict=True))


@given(sizes(ranks=5, microbatches=10), costs())
def test_gaps_are_filled_without_a_delay(size: Sizes, given: Costs) -> None:
    """What is not a W starts when it would start if there were none."""
    split = split_backward(size.build())
    free = StageCosts(F=given.default.F, I=given.default.I, W=0, recompute=given.default.recompute)
    plain = Costs(free, pair=given.pair, p2p=given.p2p)
    costly = Costs(given.default, pair=given.pair, p2p=given.p2p)
    filled = place_weight_gradients(split, WeightRule.BUBBLES, costs=costly)
    if given.pair is None and (split.partner != NO_ACTION).any():
        return  # a pair of F and I costs the same in both
    one, other = simulate(filled, costly), simulate(place_weight_gradients(split, WeightRule.BUBBLES), plain)
    one, other = one.where(one.is_compute), other.where(other.is_compute)
    starts = [dict(zip(line.code.tolist(), line.start.tolist(), strict=True)) for line in (one, other)]
    for code, start in starts[0].items():
        if code_kind(code) != Kind.W:
            assert start == starts[1][code]


@given(sizes(ranks=5, microbatches=8), st.sampled_from([WeightRule.AT_ONCE, WeightRule.BUBBLES]))
def test_with_communication_listed(size: Sizes, rule: WeightRule) -> None:
    split = split_backward(size.build())
    made = place_weight_gradients(add_communication(split), rule).validate()
    assert made.compute_only().same_order(place_weight_gradients(split, rule))
