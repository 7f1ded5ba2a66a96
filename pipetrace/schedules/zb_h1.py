"""ZB-H1: 1F1B's memory, a third of its bubble (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv:2401.10241).

The backward is split: the input gradient I, which the rank before waits for, runs as early as in 1F1B; the weight
gradient W, which nobody waits for, runs the same number of microbatches later on every rank and so fills the drain.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec, require

_PAPER = "Zero Bubble: Qi et al. 2023, arXiv:2401.10241"


def build(ranks: int, microbatches: int) -> Schedule:
    """ZB-H1; rank = stage. p >= 2."""
    return handcrafted("zb-h1", ranks, microbatches, held=ranks)


def handcrafted(name: str, ranks: int, microbatches: int, *, held: int) -> Schedule:
    """The paper's handcrafted schedules, which differ in how many activations a rank may hold.

    Args:
        name: Of the schedule.
        ranks: p, at least 2.
        microbatches: m.
        held: Activations that every rank holds at its peak, freed at W, in chunks: p for H1, 2p-1 for H2. Between the
            two the forwards run ahead in proportion.
    """
    p, m = ranks, microbatches
    require(
        p >= 2,
        f"{name} needs at least 2 ranks, not {p}: on one rank there is no bubble for weight gradients to fill",
        "1f1b does the same work on one rank",
    )
    orders = []
    for stage in range(p):
        order = RankOrder()
        # Forwards ahead of the first I: one for each rank behind in H1, two in H2.
        input_lag = min((held - 1) * (p - 1 - stage) // (p - 1), m)
        weight_lag = min(held - 1, m)  # the same on every rank, so that all hold as many activations
        # Warm-up while only F is in range, steady while all three are, drain when F has run out.
        for i in range(m + weight_lag):
            if i < m:
                order.F(stage, i)
            if 0 <= i - input_lag < m:
                order.I(stage, i - input_lag)
            if 0 <= i - weight_lag < m:
                order.W(stage, i - weight_lag)
        orders.append(order)
    return Schedule.from_orders(name, Placement.loop(p), m, orders)


SPEC = ScheduleSpec("zb-h1", build, "loop", "p >= 2; any m", _PAPER)
