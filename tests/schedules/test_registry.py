from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pipetrace import peak_in_flight
from pipetrace.errors import ScheduleError
from pipetrace.schedules import build, get, names
from tests.strategies import Sizes, sizes


@given(sizes())
def test_whatever_is_built_is_valid(size: Sizes) -> None:
    schedule = size.build()
    assert (schedule.name, schedule.ranks, schedule.microbatches) == (size.name, size.ranks, size.microbatches)
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


def test_options_of_other_schedules_are_refused() -> None:
    with pytest.raises(ScheduleError, match="1f1b takes no option 'chunks'"):
        build("1f1b", 4, 8, chunks=2)
    assert build("1f1b", 4, 8, chunks=None).stages == 4


@pytest.mark.parametrize(
    ("name", "p", "m", "options", "words"),
    [
        ("chimera", 3, 6, {}, "chimera on 3 ranks"),
        ("chimera", 4, 2, {}, "at least 4"),
        ("chimera", 4, 5, {}, "a multiple of the 2 pipes"),
        ("chimera", 4, 8, {"pipes": 3}, "with 3 pipes"),
        ("chimera", 6, 12, {"pipes": 4}, "with 4 pipes"),
        ("dualpipe", 3, 6, {}, "dualpipe on 3 ranks"),
        ("dualpipe", 4, 7, {}, "even number"),
        ("dualpipe", 4, 6, {}, "-m 8 or more"),
        ("dualpipev", 4, 7, {}, "-m 8 or more"),
        ("gpipe", 4, 8, {"backward": "random"}, "'random'"),
        ("interleaved", 4, 8, {"chunks": 0}, "0 chunks"),
        ("interleaved", 4, 8, {"group": 3}, "a group of 3"),
        ("interleaved", 4, 10, {"group": 8}, "a group of 8"),
        ("looped-bfs", 4, 8, {"chunks": 0}, "0 chunks"),
        ("zb-h2", 1, 8, {}, "zb-h2 needs at least 2 ranks, not 1"),
        ("zb-h2", 4, 8, {"memory": 3}, "zb-h2 on 4 ranks within 3 chunks"),
    ],
)
def test_limits(name: str, p: int, m: int, options: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleError) as error:
        build(name, p, m, **options)
    assert words in str(error.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    ("ranks", "microbatches", "words"),
    [
        (10**20, 1, "give at most 65535 ranks"),
        pytest.param(1 << (1 << 16), 1, "ranks", id="an integer that cannot be written out"),
        (4, 10**20, "give at most 1048574 microbatches"),
        (10_000, 10_000, "more than the 50,000,000"),
        (65_534, 1_048_574, "stages|actions"),
    ],
)
def test_what_is_too_large_is_refused_at_once(name: str, ranks: int, microbatches: int, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build(name, ranks, microbatches)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("interleaved", {"chunks": 10**20}, "stages"),
        ("looped-bfs", {"chunks": 65535}, "stages"),
        ("interleaved", {"chunks": "x"}, "chunks of interleaved is 'x', no whole number"),
        ("interleaved", {"chunks": 1.5}, "no whole number"),
        ("interleaved", {"chunks": True}, "no whole number"),
        ("interleaved", {"group": "x"}, "no whole number"),
        ("interleaved", {"group": 10**20}, "group"),
        ("chimera", {"pipes": "x"}, "no whole number"),
        ("chimera", {"pipes": 10**20}, "pipes"),
        ("v-half", {"memory": "x"}, "no whole number"),
    ],
)
def test_options_are_looked_at_before_anything_is_built(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        build(name, 4, 8, **options)


def test_more_pipes_than_an_action_can_name() -> None:
    with pytest.raises(ScheduleError, match="128 pipes"):
        build("chimera", 128, 128, pipes=128)


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "words"),
    [
        ("1f1b", 4.0, 8, "1f1b on 4.0 ranks"),
        ("1f1b", "4", 8, "1f1b on '4' ranks"),
        ("1f1b", True, 8, "1f1b on True ranks"),
        ("1f1b", 4, None, "1f1b with None microbatches"),
        (None, 4, 8, "None is no name of a schedule"),
        (7, 4, 8, "7 is no name"),
    ],
)
def test_sizes_and_names_of_a_wrong_type(name: Any, ranks: Any, microbatches: Any, words: str) -> None:
    with pytest.raises(ScheduleError, match=words) as caught:
        build(name, ranks, microbatches)
    assert caught.value.hint


def test_sizes_may_be_of_numpy() -> None:
    assert build("zbv", np.int64(3), np.int32(6)).same_order(build("zbv", 3, 6))  # type: ignore[arg-type]


@pytest.mark.parametrize(("p", "m"), [(4, 2), (4, 8), (33, 1), (5, 5), (3, 7)])
def test_zb_h2_takes_every_limit_that_it_keeps(p: int, m: int) -> None:
    for memory in range(2 * p):
        if memory < min(p, m):
            with pytest.raises(ScheduleError, match=f"within {memory} chunks"):
                build("zb-h2", p, m, memory=memory)
        else:
            peak = max(peak_in_flight(build("zb-h2", p, m, memory=memory)).release_at_weight_grad)
            assert peak == min(memory, m, 2 * p - 1)
