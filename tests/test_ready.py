"""The rule by which a rank chooses, held against a plain reading of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Kind, code_kind
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.metrics import peak_in_flight_of
from pipetrace.passes import add_communication
from pipetrace.ready import NOTHING, ReadyList, local_edges, ready_lists
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, sizes

DATAFLOW = Waiting(Wait.DATAFLOW)


def chosen_by_reading(rows: list[int], ready: set[int], held: int, takes: list[int], gives: list[int], cap: int) -> int:
    """The first ready row after which the rest of the list fits under the cap, in order; slow and plain."""
    for at, row in enumerate(rows):
        if row not in ready:
            continue
        if at == 0 or not takes[row]:
            return row
        now = held + takes[row]
        peak = now
        for other in rows[:at]:
            peak = max(peak, now + takes[other])
            now += takes[other] - gives[other]
        if peak <= cap:
            return row
    return NOTHING


@given(sizes(ranks=4, microbatches=8), st.data(), st.integers(0, 2))
def test_the_first_that_is_ready_and_may(size: Sizes, data: st.DataObject, more: int) -> None:
    schedule = size.build()
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    of = ready_lists(schedule, DATAFLOW)[rank]()
    rows = list(of.rows)
    kinds = code_kind(schedule.code)
    takes = (kinds == Kind.F).astype(int).tolist()
    gives = [
        int(kinds[r] in (Kind.B, Kind.W) or (schedule.partner[r] & 31) in (Kind.B, Kind.W))
        for r in range(len(schedule))
    ]
    cap, held = 0, 0
    for row in rows:
        held += takes[row]
        cap = max(cap, held)
        held -= gives[row]
    of = ReadyList(rows, takes, gives, cap + more, reorder=True)
    before, after = local_edges(schedule.links)
    lacks = {row: len(before[row]) for row in rows}
    ready: set[int] = set()
    held = 0
    waiting = [row for row in rows if not lacks[row]]

    def comes(row: int) -> None:
        waiting.remove(row)
        ready.add(row)
        of.add(row)

    while rows:
        # What the others make comes in any order.
        for row in [row for row in waiting if data.draw(st.booleans(), label=f"{row} comes")]:
            comes(row)
        row = of.choose()
        assert row == chosen_by_reading(rows, ready, held, takes, gives, cap + more)
        if row == NOTHING:
            # What the first of the list needs of its own rank has run: the list can always be followed.
            assert not lacks[rows[0]]
            comes(rows[0])
            row = of.choose()
            assert row == rows[0]
        of.start(row)
        rows.remove(row)
        ready.discard(row)
        held += takes[row]
        assert of.in_flight == held
        assert held <= cap + more
        of.end(row)
        held -= gives[row]
        for consumer in after[row]:
            lacks[consumer] -= 1
            if not lacks[consumer]:
                waiting.append(consumer)


def test_without_reordering_only_the_first_may_start() -> None:
    of = ready_lists(pipetrace.build("zb-h1", 2, 4), Waiting())[0]()
    first, second = list(of.rows)[:2]
    of.add(second)
    assert of.choose() == NOTHING
    of.add(first)
    assert of.choose() == first
    of.start(first)
    assert of.choose() == second


def test_caps_are_those_given_or_the_list_s_peak() -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    peaks = [of()._cap for of in ready_lists(schedule, DATAFLOW)]
    assert peaks == [4, 3, 2, 1]
    assert [of()._cap for of in ready_lists(schedule, Waiting(Wait.DATAFLOW, caps=(5, 6, 7, 8)))] == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("caps", "says"),
    [
        ([1] * 4, "rank 0: a cap of 1 chunks has no room for the list order, which holds 4"),
        ([4, 3, 2, 0], "rank 3: a cap of 0 chunks has no room for the list order, which holds 1"),
        ([4, 3], "2 caps for 4 ranks"),
        ([9] * 9, "9 caps for 4 ranks"),
        ([], "0 caps for 4 ranks"),
    ],
)
def test_caps_that_the_list_order_cannot_keep(caps: list[int], says: str) -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    for use in (ready_lists, lambda of, waiting: pipetrace.simulate(of, None, waiting)):
        with pytest.raises(ScheduleError, match=says) as caught:
            use(schedule, Waiting(Wait.DATAFLOW, caps=caps))
        assert caught.value.hint
    # Where the list order is kept the caps are of no matter.
    assert len(ready_lists(schedule, Waiting(Wait.DATAFLOW, reorder=False, caps=caps))) == 4


@given(sizes(ranks=4, microbatches=6), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_no_rank_holds_more_than_its_cap(size: Sizes, more: list[int]) -> None:
    schedule = size.build()
    static = pipetrace.peak_in_flight(schedule).release_at_weight_grad
    caps = [peak + extra for peak, extra in zip(static, more, strict=False)]
    played = pipetrace.simulate(schedule, Costs(p2p=400_000), Waiting(Wait.DATAFLOW, caps=caps))
    held = peak_in_flight_of(played).release_at_weight_grad
    assert all(peak <= cap for peak, cap in zip(held, caps, strict=True))


def test_listed_sends_and_receives_are_no_actions() -> None:
    schedule = pipetrace.build("1f1b", 3, 3)
    listed = add_communication(schedule)
    for plain, of in zip(ready_lists(schedule, DATAFLOW), ready_lists(listed, DATAFLOW), strict=True):
        assert [int(schedule.code[row]) for row in plain().rows] == [int(listed.code[row]) for row in of().rows]
        assert plain()._cap == of()._cap
