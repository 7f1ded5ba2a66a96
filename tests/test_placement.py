from __future__ import annotations

from typing import Any

import pytest

from pipetrace.errors import ScheduleError
from pipetrace.placement import Placement


def test_loop_puts_stages_round_the_ranks() -> None:
    placement = Placement.loop(3, chunks=2)
    assert [placement.rank(stage) for stage in range(6)] == [0, 1, 2, 0, 1, 2]
    assert (placement.stages, placement.pipes, placement.name) == (6, 1, "loop")
    assert placement.held_by(1) == [(0, 1), (0, 4)]


def test_two_pipes() -> None:
    placement = Placement(2, ((0, 1), (1, 0)))
    assert (placement.pipes, placement.stages) == (2, 2)
    assert placement.rank(0, pipe=1) == 1
    assert placement.held_by(0) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    "placement",
    [
        Placement.loop(1),
        Placement.loop(4),
        Placement.loop(3, 3),
        Placement.v(2),
        Placement.v(5),
        Placement.mirrored(2),
        Placement.mirrored(8, 4),
        Placement(2, ((1, 0),)),
        Placement(2, ((0, 1, 1),)),
        Placement(2, ((0, 1), (0, 1))),
    ],
)
def test_known_placements_are_recognised_by_their_table(placement: Placement) -> None:
    assert Placement.of_table(placement.ranks, placement.table) == placement


@pytest.mark.parametrize(
    ("ranks", "table", "words"),
    [
        (0, ((0,),), "at least one rank"),
        (2, (), "at least one rank"),
        (2, ((),), "at least one rank"),
        (2, ((0, 2),), "rank 2"),
        (2, ((0, -1),), "rank -1"),
        (3, ((0, 1),), "rank 2 holds no stage"),
        (2, ((0, 1), (1,)), r"\[2, 1\] stages"),
    ],
)
def test_bad_placements_are_refused(ranks: int, table: tuple[tuple[int, ...], ...], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        Placement(ranks, table)


@pytest.mark.parametrize(
    "wrong", [(2.0, ((0, 1),)), ("2", ((0, 1),)), (2, ((0, 1.0),)), (2, (("0", "1"),)), (2, 5), (2, (0, 1))]
)
def test_of_a_wrong_type(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ScheduleError, match="a placement of"):
        Placement(*wrong)


def test_a_table_may_be_of_lists() -> None:
    assert Placement(2, [[0, 1]], "loop") == Placement.loop(2)  # type: ignore[arg-type]
