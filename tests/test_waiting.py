from __future__ import annotations

import pytest

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
