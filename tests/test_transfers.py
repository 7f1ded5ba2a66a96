"""Schedules that list their sends and receives: what is accepted, and how each fault is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Action
from pipetrace.errors import DeadlockError, ScheduleError
from pipetrace.links import NO_ROW
from pipetrace.passes import add_communication
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.transfers import is_transfer
from tests.strategies import Sizes, sizes
from tests.test_schedule import of

GOOD = "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 | 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"


def test_transfers_are_derived_or_listed() -> None:
    listed = of(GOOD, microbatches=2).validate()
    derived = listed.compute_only()
    assert [str(action) for action in derived.actions(1)] == ["1F0", "1B0", "1F1", "1B1"]
    assert (listed.has_communication, derived.has_communication) == (True, False)
    assert derived.compute_only() is derived
    for schedule in (listed, derived):
        found = schedule.transfers
        ends = zip(found.send.tolist(), found.receive.tolist(), strict=True)
        assert [(str(Action.from_code(send)), str(Action.from_code(receive))) for send, receive in ends] == [
            ("0SEND_F0", "1RECV_F0"),
            ("0SEND_F1", "1RECV_F1"),
            ("1SEND_B0", "0RECV_B0"),
            ("1SEND_B1", "0RECV_B1"),
        ]
        assert found.sender.tolist() == [0, 0, 1, 1]
        assert found.receiver.tolist() == [1, 1, 0, 0]
        assert (schedule.code[found.producer] & 31).tolist() == [1, 1, 2, 2]
    assert listed.transfers.send_row.tolist() == [1, 3, 11, 15]
    assert listed.transfers.receive_row.tolist() == [8, 12, 4, 6]
    assert (derived.transfers.send_row == NO_ROW).all()


def test_listed_rows_wait_for_nothing() -> None:
    listed = of(GOOD, microbatches=2)
    rows = is_transfer(listed.code)
    for column in (listed.links.inputs, listed.links.local, listed.links.gradients):
        assert (column[rows] == NO_ROW).all()
        assert (~rows[column[column != NO_ROW]]).all()


def test_nothing_is_sent_within_a_rank() -> None:
    v = Placement.v(2)
    schedule = add_communication(build("zbv", 2, 3))
    assert not {"1SEND_F0", "2RECV_F0", "2SEND_B0", "1RECV_B0"} & {str(action) for action in schedule.actions(1)}
    rows = [" ".join(map(str, schedule.actions(rank))) for rank in range(2)]
    for text in (rows[1].replace("1F0", "1F0 1SEND_F0"), rows[1].replace("2F0", "2RECV_F0 2F0")):
        with pytest.raises(ScheduleError, match=r"rank 1: (1SEND_F0 sends to stage 2|2RECV_F0 receives from stage 1)"):
            of(f"{rows[0]} | {text}", placement=v, microbatches=3).validate()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0SEND_F1 ", "", "rank 0: 0SEND_F1 is missing, though the schedule lists transfers"),
        ("1RECV_F1 ", "", "rank 1: 1RECV_F1 is missing"),
        ("0RECV_B0 ", "", "rank 0: 0RECV_B0 is missing"),
        ("1SEND_B1", "", "rank 1: 1SEND_B1 is missing"),
        ("0SEND_F1", "0SEND_F1 0SEND_F1", "rank 0: 0SEND_F1 stands 2 times"),
        ("1RECV_F0", "1RECV_F0 1RECV_F0 1RECV_F0", "rank 1: 1RECV_F0 stands 3 times"),
        ("0F0 0SEND_F0", "0SEND_F0 0F0", "rank 0: 0SEND_F0 stands before 0F0, whose output it sends"),
        ("1B0 1SEND_B0", "1SEND_B0 1B0", "rank 1: 1SEND_B0 stands before 1B0, whose output it sends"),
        ("1RECV_F0 1F0", "1F0 1RECV_F0", "rank 1: 1RECV_F0 stands after 1F0, which takes what it receives"),
        ("0RECV_B0 0B0", "0B0 0RECV_B0", "rank 0: 0RECV_B0 stands after 0B0, which takes what it receives"),
        ("1RECV_F0", "1RECV_F0 1RECV_B0", "rank 1: 1RECV_B0 receives from stage 2, but the stages are 0 to 1"),
        ("1RECV_F0", "1RECV_F0 1SEND_F0", "rank 1: 1SEND_F0 sends to stage 2, but"),
        ("0F0 ", "0RECV_F0 0F0 ", "rank 0: 0RECV_F0 receives from stage -1, but"),
        ("0F0 ", "0F0 0SEND_B1 ", "rank 0: 0SEND_B1 sends to stage -1, but"),
        (
            "0SEND_F1",
            "1SEND_F1",
            "rank 0: 1SEND_F1 stands on the wrong rank: the loop placement puts stage 1 on rank 1",
        ),
        ("0SEND_F1", "0SEND_F2", "rank 0: 0SEND_F2 names a microbatch that is not there"),
        ("0SEND_F1", "2SEND_F1", "rank 0: 2SEND_F1 names a stage that is not there"),
        ("0SEND_F1", "d1:0SEND_F1", "rank 0: d1:0SEND_F1 names a pipe that is not there"),
    ],
)
def test_faults_are_named(old: str, new: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        of(GOOD.replace(old, new, 1), microbatches=2).validate()


def test_received_in_another_order_than_sent() -> None:
    rows = "0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1 | 1RECV_F0 1RECV_F1 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1"
    with pytest.raises(ScheduleError) as caught:
        of(rows, microbatches=2).validate()
    assert caught.value.message == ("rank 1: 1RECV_F0 stands before 1RECV_F1, but rank 0 has 0SEND_F1 before 0SEND_F0")
    of(rows.replace("0SEND_F1 0SEND_F0", "0SEND_F0 0SEND_F1"), microbatches=2).validate()


def test_a_send_too_late_is_a_deadlock() -> None:
    rows = GOOD.replace("0SEND_F0 ", "", 1).replace("0B0", "0B0 0SEND_F0", 1).replace("0SEND_F1 ", "", 1)
    with pytest.raises(DeadlockError) as caught:
        of(rows.replace("0SEND_F0", "0SEND_F0 0SEND_F1", 1), microbatches=2).validate()
    assert caught.value.message == "deadlock: rank 0 at 0B0 waits for 1SEND_B0; rank 1 at 1F0 waits for 0SEND_F0"


@given(sizes(ranks=6, microbatches=10), st.data())
def test_a_lost_or_doubled_end_is_noticed(size: Sizes, data: st.DataObject) -> None:
    schedule = add_communication(size.build())
    listed = np.flatnonzero(is_transfer(schedule.code))
    if not listed.size:
        return
    row = int(data.draw(st.sampled_from(listed.tolist())))
    rank, text = int(schedule.rank[row]), schedule.links.text(row)
    lists = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    mine, at = lists[rank], row - int(schedule.first[rank])
    doubled = [*mine, mine[at]]
    for changed, reason in ((mine[:at] + mine[at + 1 :], "is missing"), (doubled, "stands 2 times")):
        lists[rank] = changed
        broken = Schedule.from_actions("broken", schedule.placement, schedule.microbatches, lists)
        if not broken.has_communication:
            continue
        with pytest.raises(ScheduleError, match=f"rank {rank}: {text} {reason}"):
            broken.validate()
