"""1F1B, also called PipeDream-Flush (Narayanan et al. 2020, arXiv:2006.09503).

A rank holds at most as many activations as there are ranks from it to the last, whatever m is.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int) -> Schedule:
    """1F1B; rank = stage."""
    p, m = ranks, microbatches
    orders = []
    for stage in range(p):
        order = RankOrder()
        ahead = min(p - 1 - stage, m)
        # Warm-up: as many forwards as there are ranks behind this one.
        for i in range(ahead):
            order.F(stage, i)
        # Steady: one forward, one backward.
        for i in range(m - ahead):
            order.F(stage, ahead + i)
            order.B(stage, i)
        # Drain: the backwards that are left.
        for i in range(m - ahead, m):
            order.B(stage, i)
        orders.append(order)
    return Schedule.from_orders("1f1b", Placement.loop(p), m, orders)


SPEC = ScheduleSpec("1f1b", build, "loop", "any p, m", "PipeDream-Flush: Narayanan et al. 2020, arXiv:2006.09503")
