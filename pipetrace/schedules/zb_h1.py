"""ZB-H1: 1F1B's memory, a third of its bubble (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241).

The backward is split: the input gradient I, which the rank before waits for, runs as early as in 1F1B; the weight
gradient W, which nobody waits for, runs the same number of microbatches later on every rank and so fills the drain.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule


def build(ranks: int, microbatches: int) -> Schedule:
    """ZB-H1; rank = stage."""
    p, m = ranks, microbatches
    orders = []
    for stage in range(p):
        order = RankOrder()
        input_lag = p - 1 - stage  # as in 1F1B: the ranks behind this one
        weight_lag = p - 1  # the same on every rank, so that all hold p activations
        # Warm-up while only F is in range, steady while all three are, drain when F has run out.
        for i in range(m + weight_lag):
            if i < m:
                order.F(stage, i)
            if 0 <= i - input_lag < m:
                order.I(stage, i - input_lag)
            if 0 <= i - weight_lag < m:
                order.W(stage, i - weight_lag)
        orders.append(order)
    return Schedule.from_orders("zb-h1", Placement.loop(p), m, orders)
