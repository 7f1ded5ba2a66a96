"""What each rank's idle time waited for, and for whom: a table beside the waterfall, never added to it.

A rank that stands idle because another one is slow has no fault of its own; that is why these times say where one
waits, and the waterfall what it comes from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pipetrace.costs import Costs
from pipetrace.diff.observe import NOBODY
from pipetrace.metrics import Cause, Reason, bindings
from pipetrace.metrics.bindings import NO_TILE
from pipetrace.metrics.bubbles import Bubbles, bubbles
from pipetrace.metrics.gaps import pieces_of
from pipetrace.metrics.tiles import Lookup
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline


class Awaits(StrEnum):
    """What idle time waited for; as `Cause`, with what was posted late apart from what was under way."""

    NOTHING_YET = "nothing yet"
    """The rank had not run anything."""
    INPUT = "input"
    """The output of the stage before was not made."""
    GRADIENT = "gradient"
    """The gradient of the stage after was not made."""
    LOCAL = "local"
    """What the rank itself makes on another lane was not there."""
    POST = "post"
    """It was made, but the receive was not posted: the lane was blocked by an earlier item."""
    TRANSFER = "transfer"
    """It was under way."""
    UNRECORDED = "not recorded"
    """It was made by a rank that was not recorded, so that nobody knows when."""
    HOST = "host"
    """All that is known to be needed was there."""
    NOTHING_LEFT = "nothing left"
    """The rank had run all."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Idle time of one timeline.

    Args:
        makespan: ns.
        busy: ns of each rank that was recorded, by rank.
        idle: ns by (rank, what was awaited, whose: the rank that makes it, `NOBODY` where nobody does). For each rank
            busy + Σ idle = makespan.
    """

    makespan: int
    busy: Mapping[int, int]
    idle: Mapping[tuple[int, Awaits, int], int]

    def of(self, rank: int) -> Mapping[Awaits, int]:
        """ns of a rank's idle time by what was awaited."""
        sums = dict.fromkeys(Awaits, 0)
        for (at, awaits, _), ns in self.idle.items():
            if at == rank:
                sums[awaits] += ns
        return sums


# What a cause is called here; behind them what is split from the transfers, and from what has no known cause.
_AWAITS = (*(Awaits[cause.name] for cause in Cause), Awaits.POST, Awaits.UNRECORDED)
_NUMBER = {awaits: number for number, awaits in enumerate(_AWAITS)}
_FOR_NOBODY = [_NUMBER[Awaits.NOTHING_YET], _NUMBER[Awaits.HOST], _NUMBER[Awaits.NOTHING_LEFT]]


def waits(
    schedule: Schedule,
    timeline: Timeline,
    costs: Costs | None = None,
    unrecorded: Lookup | None = None,
) -> Waits:
    """What the idle time of a timeline's first replica waited for.

    Args:
        schedule: What it is of.
        timeline: Ideal or measured. A rank without an action was not recorded and is in no sum.
        costs: What an ideal was simulated with.
        unrecorded: Finds by an action's code the rank that makes what it needs and was not recorded.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    of = bindings(schedule, timeline, costs)
    figures = recorded_bubbles(timeline)
    rank, start, end, cause, row = pieces_of(of)
    if not len(of.tiles):
        return Waits(figures.makespan, figures.busy, {})
    for_whom = np.full(cause.size, NOBODY, dtype=np.int64)
    if unrecorded is not None:
        without_cause = (row >= 0) & (cause == _NUMBER[Awaits.HOST])
        for_whom = np.where(without_cause, unrecorded.find(of.tiles.code[row]), NOBODY)
        cause = np.where(for_whom == NOBODY, cause, _NUMBER[Awaits.UNRECORDED])
    at = np.maximum(row, 0)  # where nothing comes, it is for nobody anyway
    maker = of.producer[at]
    for_nobody = np.isin(cause, _FOR_NOBODY) | (maker == NO_TILE)
    source = np.where(for_nobody, NOBODY, of.tiles.rank[np.maximum(maker, 0)])
    source = np.where(for_whom == NOBODY, source, for_whom)
    # Under way only from when it was asked for.
    late = (cause == _NUMBER[Awaits.TRANSFER]) & (of.reason[at] == Reason.POSTED)
    under_way = np.where(late, np.clip(of.sent[at], start, end), start)
    idle: defaultdict[tuple[int, Awaits, int], int] = defaultdict(int)
    for awaits, lasted in (
        (np.full_like(cause, _NUMBER[Awaits.POST]), under_way - start),
        (cause, end - under_way),
    ):
        which, index = np.unique(np.stack([rank, awaits, source], axis=1), axis=0, return_inverse=True)
        sums = np.zeros(len(which), dtype=np.int64)
        np.add.at(sums, index.ravel(), lasted)
        for (of_rank, number, of_source), ns in zip(which.tolist(), sums.tolist(), strict=True):
            if ns and of_rank in figures.busy:
                idle[of_rank, _AWAITS[number], of_source] += ns
    return Waits(figures.makespan, figures.busy, dict(idle))


@dataclass(frozen=True, slots=True)
class RecordedBubbles:
    """The bubbles of those ranks that have actions: of the others nothing is known, not even that they were idle.

    Args:
        makespan: ns over these ranks.
        busy, global_idle, in_span_idle: ns by rank; see `pipetrace.metrics.Bubbles`.
    """

    makespan: int
    busy: Mapping[int, int]
    global_idle: Mapping[int, int]
    in_span_idle: Mapping[int, int]

    @property
    def fraction(self) -> float:
        """Σ global idle / (recorded ranks × makespan); 0 where there are none."""
        whole = len(self.busy) * self.makespan
        return sum(self.global_idle.values()) / whole if whole else 0.0


def recorded_bubbles(timeline: Timeline, of: Bubbles | None = None) -> RecordedBubbles:
    """The bubbles of the ranks of a timeline's first replica that have actions."""
    of = of or bubbles(timeline)
    ranks = np.unique(timeline.rank[timeline.is_compute & (timeline.replica == 0)]).tolist()
    return RecordedBubbles(
        of.makespan,
        *({rank: column[rank] for rank in ranks} for column in (of.busy, of.global_idle, of.in_span_idle)),
    )
