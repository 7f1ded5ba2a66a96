from __future__ import annotations

import pytest
from hypothesis import given

from pipetrace.errors import ScheduleError
from pipetrace.schedules import build, get, names
from tests.strategies import sizes


@given(sizes())
def test_whatever_is_built_is_valid(size: tuple[str, int, int]) -> None:
    name, ranks, microbatches = size
    schedule = build(name, ranks, microbatches)
    assert (schedule.name, schedule.ranks, schedule.microbatches) == size
    schedule.validate()


@pytest.mark.parametrize(
    ("typed", "meant"), [("zbh1", "zb-h1"), ("ZB_H1", "zb-h1"), ("zb-h", "zb-h1"), ("1f1", "1f1b"), ("Gpipe", "gpipe")]
)
def test_unknown_name_gets_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(ScheduleError) as error:
        build(typed, 4, 8)
    assert typed in error.value.message
    assert meant in error.value.hint


def test_unknown_name_without_a_near_one_gets_all() -> None:
    with pytest.raises(ScheduleError) as error:
        get("xxxxxxxx")
    assert all(name in error.value.hint for name in names())


@pytest.mark.parametrize("name", names())
def test_sizes_that_cannot_be(name: str) -> None:
    with pytest.raises(ScheduleError, match="0 microbatches"):
        build(name, 4, 0)
    with pytest.raises(ScheduleError, match="-1 ranks"):
        build(name, -1, 4)


def test_zb_h1_needs_a_pipeline() -> None:
    with pytest.raises(ScheduleError, match="zb-h1 needs at least 2 ranks, not 1"):
        build("zb-h1", 1, 4)
