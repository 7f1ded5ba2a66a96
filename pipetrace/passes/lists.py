"""A schedule as plain lists, which passes rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule

Entry: TypeAlias = tuple[int, int]
"""Codes of an action and of its partner; the latter `NO_ACTION` where it is no pair."""


def check_whole_stages(schedule: Schedule) -> None:
    """Refuses a schedule in parts of layers, for passes that move whole stages.

    Raises:
        ScheduleError: It is one.
    """
    if schedule.has_parts:
        raise ScheduleError(
            f"{schedule.name} is in parts of layers, which this pass does not know", "let passes.expand_moe come last"
        )


def entries(schedule: Schedule, rank: int) -> list[Entry]:
    """The list of one rank."""
    rows = slice(int(schedule.first[rank]), int(schedule.first[rank + 1]))
    return list(zip(schedule.code[rows].tolist(), schedule.partner[rows].tolist(), strict=True))


def with_lists(schedule: Schedule, lists: Sequence[Sequence[Entry]]) -> Schedule:
    """The schedule with other lists, one a rank."""
    table = np.array([entry for mine in lists for entry in mine], dtype=np.int64).reshape(-1, 2)
    first = np.concatenate([[0], np.cumsum([len(mine) for mine in lists])]).astype(np.int64)
    return replace(schedule, code=table[:, 0].copy(), partner=table[:, 1].copy(), first=first)
