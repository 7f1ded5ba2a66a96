from __future__ import annotations

from typing import Any

import pytest

from pipetrace import build, simulate
from pipetrace.costs import Costs
from pipetrace.errors import CostError
from pipetrace.waiting import Wait, Waiting, waiting_from_dict, waiting_to_dict


@pytest.mark.parametrize(
    "waiting",
    [
        Waiting(),
        Waiting(Wait.INLINE),
        Waiting(Wait.DATAFLOW),
        Waiting(Wait.DATAFLOW, reorder=False),
        Waiting(Wait.DATAFLOW, caps=[3, 2]),
    ],
)
def test_what_a_run_records_reads_back(waiting: Waiting) -> None:
    table = waiting_to_dict(waiting)
    assert waiting_from_dict({"other": 1, **table}) == waiting
    assert waiting.reorders == (table["wait"] == "dataflow" and "reorder" not in table)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"wait": "later"}, "unknown way of waiting 'later'"),
        ({"wait": ["inline"]}, "unknown way"),
        ({"wait": "dataflow", "reorder": 1}, "reorder of the way of waiting is 1"),
        ({"wait": "dataflow", "caps": [1.5]}, "caps of the way of waiting"),
        ({"wait": "dataflow", "caps": [True]}, "caps of the way of waiting"),
        ({"wait": "dataflow", "caps": 3}, "caps of the way of waiting"),
    ],
)
def test_a_record_that_cannot_be_understood(table: dict[str, object], says: str) -> None:
    with pytest.raises(CostError, match=says) as caught:
        waiting_from_dict(table)
    assert caught.value.hint


def test_as_ever_where_nothing_is_recorded() -> None:
    assert waiting_from_dict({}) == Waiting()


@pytest.mark.parametrize("text", list(Wait))
def test_a_policy_as_text_is_the_policy(text: str) -> None:
    assert Waiting(str(text)).policy is Wait(text)  # type: ignore[arg-type]
    schedule, costs = build("1f1b", 3, 4), Costs(p2p=300_000)
    as_text = simulate(schedule, costs, Waiting(str(text)))  # type: ignore[arg-type]
    assert as_text.makespan == simulate(schedule, costs, Waiting(Wait(text))).makespan


def test_inline_as_text_is_not_taken_for_prefetch() -> None:
    schedule, costs = build("1f1b", 3, 4), Costs(p2p=300_000)
    inline = simulate(schedule, costs, Waiting("inline")).makespan  # type: ignore[arg-type]
    assert inline > simulate(schedule, costs).makespan


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": "later"}, "unknown way of waiting 'later'"),
        ({"policy": None}, "unknown way of waiting None"),
        ({"policy": ["inline"]}, "unknown way of waiting"),
        ({"reorder": "no"}, "reorder of the way of waiting is 'no'"),
        ({"ordered": "tagged"}, "ordered of the way of waiting is 'tagged'"),
        ({"caps": 3}, "caps of the way of waiting are 3"),
        ({"caps": ["a"] * 4}, "caps of the way"),
        ({"caps": "1234"}, "caps of the way"),
        ({"caps": [1.0]}, "caps of the way"),
        ({"caps": [-1]}, "caps of the way"),
        ({"post": "1"}, "posting a transfer costs '1' ns"),
        ({"post": 1.5}, "posting a transfer costs 1.5 ns"),
        ({"spin": "a"}, "slows compute by 'a'"),
        ({"spin": True}, "slows compute by True"),
    ],
)
def test_what_is_no_way_of_waiting(given: dict[str, Any], says: str) -> None:
    with pytest.raises(CostError, match=says) as caught:
        Waiting(**given)
    assert caught.value.hint
