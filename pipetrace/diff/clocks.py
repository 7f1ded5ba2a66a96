"""Clocks that disagree: what one rank sends is received before it left.

Only that is evidence. How far two clocks are apart then follows from the fastest transfer each way, taken to be equally
long; with one way alone it is the least that explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipetrace.action import IntArray
from pipetrace.diff.observe import Observed
from pipetrace.diff.work import Work
from pipetrace.timeline import TIME_COLUMNS, UNKNOWN, Timeline

TOLERANCE = 10_000
"""ns by which recorded times of one clock may contradict each other."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """By how much ranks' clocks are ahead.

    Args:
        ahead: ns by rank, against most ranks; those at 0 are left out.
        early: Transfers that are received before they were sent.
        worst: ns of the worst of them.
    """

    ahead: Mapping[int, int]
    early: int
    worst: int

    def corrected(self, timeline: Timeline) -> Timeline:
        """The timeline with all ranks on the clock of most."""
        by = np.array([self.ahead.get(rank, 0) for rank in range(timeline.ranks)], dtype=np.int64)[timeline.rank]
        columns = {name: getattr(timeline, name) for name in ("replica", "rank", "lane", "code", "partner")}
        for name in TIME_COLUMNS:
            column = getattr(timeline, name)
            columns[name] = np.where(column == UNKNOWN, UNKNOWN, column - by)
        return Timeline.from_columns(
            timeline.ranks, columns, replicas=timeline.replicas, epoch=timeline.epoch
        ).from_first_action()


def find_clocks(work: Work, seen: Observed, arrived: IntArray, sent: IntArray) -> Clocks | None:
    """The clocks of a measured step; None where nothing contradicts that they are one.

    Args:
        work: Its rows.
        seen: It.
        arrived: When each transfer was received; shape (k,). Only those whose rows are both there are looked at.
        sent: When each had left; shape (k,).
    """
    lag = arrived - sent
    tolerance = 0 if seen.exact else TOLERANCE
    early = seen.moved & (lag < -tolerance)
    if not early.any():
        return None
    ranks = work.schedule.ranks
    least = np.full((ranks, ranks), np.iinfo(np.int64).max)
    np.minimum.at(least, (work.sender[seen.moved], work.receiver[seen.moved]), lag[seen.moved])
    rows, values = [], []
    for one in range(ranks):
        for other in range(one + 1, ranks):
            there, back = least[one, other], least[other, one]
            known = [value < np.iinfo(np.int64).max for value in (there, back)]
            if all(known):
                apart = (int(there) - int(back)) / 2
            elif any(known):
                apart = float(min(there, 0) if known[0] else -min(back, 0))
            else:
                continue
            row = np.zeros(ranks)
            row[other], row[one] = 1, -1
            rows.append(row)
            values.append(apart)
    ahead = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
    ahead = ahead - _of_most(ahead[sorted(seen.recorded)])
    return Clocks(
        {rank: round(value) for rank, value in enumerate(ahead.tolist()) if rank in seen.recorded and round(value)},
        int(early.sum()),
        int(-lag[early].min()),
    )


def _of_most(values: npt.NDArray[np.float64]) -> float:
    """The value that is nearest to all others."""
    return float(values[np.abs(values[:, None] - values[None, :]).sum(axis=1).argmin()]) if values.size else 0.0
