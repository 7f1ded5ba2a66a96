"""ZB-V: no bubble at 1F1B's memory, with two chunks a rank laid as a V (Qi et al. 2023, arXiv:2401.10241, section 6).

Rank r holds stages r and 2p-1-r. The last stage lies beside the first, so the first backward comes early, and every
rank holds the same amount of activations.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.schedules.counted import CountedOrder
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int) -> Schedule:
    """ZB-V; two chunks a rank. Any p, m; the bubble is gone from m >= 2p-1 on, at F = I = W."""
    p, m = ranks, microbatches
    enough = max(m, 2 * p - 1)  # with fewer the phases are those of 2p-1 microbatches, less what is not there
    orders = []
    for rank in range(p):
        down, up = rank, 2 * p - 1 - rank
        order = CountedOrder(m)
        # Warm-up 1: forwards down, until the first of them can have come back up.
        for _ in range(2 * (p - rank) - 1):
            order.next_F(down)
        # Warm-up 2: one up, one down.
        for _ in range(rank):
            order.next_F(up)
            order.next_F(down)
        # Warm-up 3: forwards and backwards of what comes up.
        for _ in range(p - rank):
            order.next_F(up)
            order.next_I(up)
            order.next_W(up)
        # Steady: all six in turn, and on without the forwards down once they have run out.
        while order.forwards[up] < enough:
            order.next_F(down)
            order.next_I(down)
            order.next_W(down)
            order.next_F(up)
            order.next_I(up)
            order.next_W(up)
        # Drain 1: input gradients alone, which the ranks before wait for.
        for _ in range(rank):
            order.next_I(down)
            order.next_I(up)
        # Drain 2: the last input gradients, weight gradients between them.
        for _ in range(p - rank):
            order.next_I(down)
            order.next_W(down)
        # Drain 3: the weight gradients that are left.
        for stage in (up, down):
            while order.weights[stage] < order.backwards[stage]:
                order.next_W(stage)
        orders.append(order)
    return Schedule.from_orders("zbv", Placement.v(p), m, orders)


SPEC = ScheduleSpec("zbv", build, "v", "any p, m; best m >= 2p-1", "Zero Bubble: Qi et al. 2023, arXiv:2401.10241")
