"""GPipe: all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)."""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule


def build(ranks: int, microbatches: int) -> Schedule:
    """GPipe with the backwards in microbatch order, as torch runs it; rank = stage."""
    orders = []
    for stage in range(ranks):
        order = RankOrder()
        for i in range(microbatches):
            order.F(stage, i)
        for i in range(microbatches):
            order.B(stage, i)
        orders.append(order)
    return Schedule.from_orders("gpipe", Placement.loop(ranks), microbatches, orders)
