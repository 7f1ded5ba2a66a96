from __future__ import annotations

import itertools

from hypothesis import given

from pipetrace.action import Action, Kind, Pair
from pipetrace.metrics import peak_in_flight
from pipetrace.passes import add_communication, split_backward
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.strategies import Sizes, sizes
from tests.test_schedule import of


def test_1f1b() -> None:
    split = split_backward(build("1f1b", 2, 2))
    assert [" ".join(map(str, split.actions(rank))) for rank in range(2)] == [
        "0F0 0F1 0I0 0W0 0I1 0W1",
        "1F0 1I0 1W0 1F1 1I1 1W1",
    ]
    assert (split.name, split.microbatches) == ("1f1b", 2)


def test_the_weight_gradient_of_a_pair_follows_it() -> None:
    schedule = of("0F0 (0F1;0B0)OVERLAP_F_B (0F2;0I1)OVERLAP_F_B 0B2 0W1", microbatches=3)
    split = split_backward(schedule).validate()
    assert " ".join(map(str, split.actions(0))) == ("0F0 (0F1;0I0)OVERLAP_F_B 0W0 (0F2;0I1)OVERLAP_F_B 0I2 0W2 0W1")


def test_sends_leave_before_the_weight_gradient() -> None:
    split = split_backward(of("0F0 0SEND_F0 0RECV_B0 0B0 | 1RECV_F0 1F0 1B0 1SEND_B0")).validate()
    assert " ".join(map(str, split.actions(0))) == "0F0 0SEND_F0 0RECV_B0 0I0 0W0"
    assert " ".join(map(str, split.actions(1))) == "1RECV_F0 1F0 1I0 1SEND_B0 1W0"


@given(sizes())
def test_any_schedule_can_be_split(size: Sizes) -> None:
    schedule = size.build()
    split = split_backward(schedule).validate()
    assert split_backward(split).same_order(split)
    assert peak_in_flight(split).release_at_weight_grad == peak_in_flight(schedule).release_at_weight_grad
    for rank in range(schedule.ranks):
        before = [half for item in schedule.actions(rank) for half in halves(item)]
        after = list(split.actions(rank))
        assert all(half.kind is not Kind.B for item in after for half in halves(item))
        fulls = {(a.pipe, a.stage, a.microbatch) for a in before if a.kind is Kind.B}
        for item, following in itertools.pairwise([*after, None]):
            assert item is not None
            last = halves(item)[-1]
            if last.kind is Kind.I and (last.pipe, last.stage, last.microbatch) in fulls:
                assert following == Action(Kind.W, last.stage, last.microbatch, last.pipe)
    if not (schedule.partner != 0).any():
        assert simulate(split).makespan <= simulate(schedule).makespan


@given(sizes(ranks=5, microbatches=8))
def test_with_communication_listed(size: Sizes) -> None:
    schedule = size.build()
    split = split_backward(add_communication(schedule)).validate()
    assert split.compute_only().same_order(split_backward(schedule))


def halves(item: Action | Pair) -> tuple[Action, ...]:
    return (item,) if isinstance(item, Action) else (item.forward, item.backward)
