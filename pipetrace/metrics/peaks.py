"""Activations in flight as the order alone has them: at any costs, without times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import IntArray, Kind
from pipetrace.metrics.tiles import backward_half, is_kind
from pipetrace.schedule import Schedule
from pipetrace.transfers import is_transfer


@dataclass(frozen=True, slots=True)
class PeakInFlight:
    """The most activations a rank holds at once, in chunks (one stage, one microbatch); one entry a rank.

    The two extremes of what real memory does, by what frees an activation.
    """

    release_at_input_grad: tuple[int, ...]
    release_at_weight_grad: tuple[int, ...]


def peak_in_flight(schedule: Schedule) -> PeakInFlight:
    """Peak activations in flight. Ranks run in order, so it follows from the order alone, at any costs."""
    return PeakInFlight(
        *(
            tuple(int(in_flight(schedule, rank, release).max(initial=0)) for rank in range(schedule.ranks))
            for release in (Kind.I, Kind.W)
        )
    )


def in_flight(schedule: Schedule, rank: int, release: Kind) -> IntArray:
    """Activations that a rank holds while each action of its list runs, in chunks.

    Args:
        schedule: Whose list.
        rank: Which list.
        release: `Kind.I` for activations freed at the end of I, `Kind.W` at the end of W; a B frees at its end.

    Returns:
        Shape (actions of the rank,), in list order; sends and receives are left out.
    """
    rows = slice(int(schedule.first[rank]), int(schedule.first[rank + 1]))
    computes = ~is_transfer(schedule.code[rows])
    code, partner = schedule.code[rows][computes], schedule.partner[rows][computes]
    takes, frees = is_kind(code, Kind.F), is_kind(backward_half(code, partner), Kind.B, release)
    # Taken at an action's start, freed at its end: while it runs, both are held.
    held: IntArray = np.cumsum(takes) - np.cumsum(frees) + frees.astype(np.int64)
    return held
