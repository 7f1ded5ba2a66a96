from __future__ import annotations

import pytest
from hypothesis import given

from pipetrace.channels import check_ordered_channels, pair_orders
from pipetrace.errors import ScheduleError
from pipetrace.passes import add_communication
from pipetrace.schedules import build
from tests.strategies import Sizes, sizes
from tests.test_schedule import of


def test_orders_of_both_sides() -> None:
    orders = pair_orders(build("1f1b", 2, 2))
    assert {pair: [str(action) for action in order.sent] for pair, order in orders.items()} == {
        (0, 1): ["1RECV_F0", "1RECV_F1"],
        (1, 0): ["0RECV_B0", "0RECV_B1"],
    }
    assert all(order.agree for order in orders.values())


def test_a_pair_gives_and_takes_without_an_order() -> None:
    # Rank 0 sends 1RECV_F6 and 6RECV_B0 out of different rows; a pair on either side would leave the order open.
    text = "0F0 0F1 3F0 (0F2;3B0)OVERLAP_F_B 3F1 3B1 0B0 3F2 3B2 0B1 0B2"
    back = "1F0 2F0 1F1 2F1 2B0 1F2 1B0 2F2 2B1 1B1 2B2 1B2"
    zbv = build("zbv", 2, 3)
    schedule = of(f"{text} | {back}", placement=zbv.placement, microbatches=3).validate()
    order = pair_orders(schedule)[0, 1]
    assert [str(action) for action in order.sent][:4] == ["1RECV_F0", "1RECV_F1", "2RECV_B0", "1RECV_F2"]
    assert order.agree


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved", "dualpipe"])
def test_schedules_that_need_in_the_order_of_sending(name: str) -> None:
    check_ordered_channels(build(name, 4, 8))


@pytest.mark.parametrize("name", ["zbv", "dualpipev"])
def test_v_placements_need_out_of_the_order_of_sending(name: str) -> None:
    schedule = build(name, 4, 8)
    with pytest.raises(ScheduleError) as caught:
        check_ordered_channels(schedule)
    assert caught.value.message == (
        "rank 0 sends 1RECV_F6 before 6RECV_B0 to rank 1, which needs 6RECV_B0 before 1RECV_F6: "
        "an ordered channel can hang"
    )
    assert not pair_orders(schedule)[0, 1].agree
    check_ordered_channels(add_communication(schedule))


def test_both_ways_share_the_channel() -> None:
    rows = "0F0 0SEND_F0 0F1 {} 0B0 0RECV_B1 0B1 | 1RECV_F0 1F0 1B0 {} 1F1 1B1 1SEND_B1"
    check_ordered_channels(of(rows.format("0SEND_F1 0RECV_B0", "1RECV_F1 1SEND_B0"), microbatches=2))
    check_ordered_channels(of(rows.format("0RECV_B0 0SEND_F1", "1SEND_B0 1RECV_F1"), microbatches=2))
    crossed = of(rows.format("0SEND_F1 0RECV_B0", "1SEND_B0 1RECV_F1"), microbatches=2).validate()
    with pytest.raises(ScheduleError) as caught:
        check_ordered_channels(crossed)
    assert caught.value.message == (
        "rank 0 has 0SEND_F1 before 0RECV_B0, but rank 1 has 1SEND_B0 before 1RECV_F1: an ordered channel can hang"
    )
    assert all(order.agree for order in pair_orders(crossed).values())


@given(sizes(ranks=6, microbatches=12))
def test_every_transfer_is_in_both_orders_once(size: Sizes) -> None:
    schedule = size.build()
    orders = pair_orders(schedule)
    assert sum(len(order.sent) for order in orders.values()) == len(schedule.transfers)
    for (sender, receiver), order in orders.items():
        assert sender != receiver
        assert set(order.sent) == set(order.needed)
        assert len(set(order.sent)) == len(order.sent)
