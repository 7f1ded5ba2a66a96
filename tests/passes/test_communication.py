from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given

from pipetrace.action import Action, Kind, Pair
from pipetrace.channels import check_ordered_channels
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import ScheduleError
from pipetrace.passes import add_communication, remove_communication
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.times import UNITS
from tests.strategies import Sizes, costs, sizes
from tests.test_schedule import of


def orders(schedule: Schedule) -> list[str]:
    return [" ".join(map(str, schedule.actions(rank))) for rank in range(schedule.ranks)]


def test_1f1b() -> None:
    assert orders(add_communication(build("1f1b", 2, 3))) == [
        # 0F2 and 1B1 end at one moment, and each sends to the other's rank: the shorter one has its receive before it.
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0F2 0SEND_F2 0B1 0RECV_B2 0B2",
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2",
    ]


def test_a_pair_sends_both_outputs_behind_it() -> None:
    listed = orders(add_communication(build("dualpipe", 4, 8)))
    assert "(1F3;d1:2B5)OVERLAP_F_B 1SEND_F3 d1:2SEND_B5" in listed[1]


def test_receives_stand_where_the_costs_let_them_arrive() -> None:
    slow = Costs(stages={0: StageCosts(F=5 * UNITS["ms"], I=1, W=1)})
    schedule = of("0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1", microbatches=2)
    assert orders(add_communication(schedule))[1].startswith("1RECV_F0 1F0 1RECV_F1 1B0")
    assert orders(add_communication(schedule, slow))[1].startswith("1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1")


def test_only_one_communication() -> None:
    listed = add_communication(build("1f1b", 2, 2))
    with pytest.raises(ScheduleError, match="1f1b lists its sends and receives already"):
        add_communication(listed)
    single = build("gpipe", 1, 2)
    assert add_communication(single).same_order(single)


@given(sizes(), costs())
def test_there_and_back(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    listed = add_communication(schedule, given).validate()
    assert listed.has_communication == (len(schedule.transfers) > 0)
    assert len(listed) == len(schedule) + 2 * len(schedule.transfers)
    back = remove_communication(listed)
    assert back.same_order(schedule)
    assert (back.placement, back.microbatches, back.name) == (schedule.placement, schedule.microbatches, schedule.name)
    assert remove_communication(schedule) is schedule
    check_ordered_channels(listed)
    for rank in range(schedule.ranks):
        assert sends_follow_their_producer(list(listed.actions(rank)))


def sends_follow_their_producer(items: list[Action | Pair]) -> bool:
    last: tuple[Action, ...] = ()
    for item in items:
        if isinstance(item, Pair):
            last = (item.forward, item.backward)
        elif item.kind in (Kind.SEND_F, Kind.SEND_B):
            kinds = (Kind.F,) if item.kind is Kind.SEND_F else (Kind.B, Kind.I)
            if not any(
                (half.stage, half.microbatch) == (item.stage, item.microbatch) and half.kind in kinds for half in last
            ):
                return False
        else:
            last = (item,)
    return True


@given(sizes(ranks=6, microbatches=10), costs())
def test_runs_where_nothing_is_buffered(size: Sizes, given: Costs) -> None:
    """Every rank stops at each SEND and each RECV until the other side has come to the other end."""
    schedule = add_communication(size.build(), given)
    other_end = dict(zip(schedule.transfers.send_row.tolist(), schedule.transfers.receive_row.tolist(), strict=True))
    other_end |= {receive: send for send, receive in other_end.items()}
    position = schedule.first[:-1].tolist()
    stop = schedule.first[1:].tolist()
    done: Counter[str] = Counter()

    def steps(rank: int) -> Iterator[None]:
        while position[rank] < stop[rank]:
            row = position[rank]
            end = other_end.get(row)
            if end is not None:
                if end not in position:
                    return
                position[int(schedule.rank[end])] += 1
            done[schedule.links.text(row)] += 1
            position[rank] += 1
            yield

    progress = True
    while progress:
        progress = False
        for rank in range(schedule.ranks):
            for _ in steps(rank):
                progress = True
    assert position == stop
