"""Interleaved zero bubble: interleaved 1F1B with split backwards, as torch's ScheduleInterleavedZeroBubble orders it
(after Qi et al. 2023, arXiv:2401.10241).

One forward for each rank behind before the first I instead of interleaved 1F1B's two; W follows I by as many
microbatches as the rank's number, so that the last rank, which waits least, delays most.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.interleaved import group_size, virtual_order
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int, *, chunks: int = 2, group: int | None = None) -> Schedule:
    """Interleaved zero bubble.

    Args:
        ranks: p.
        microbatches: m.
        chunks: v, stages a rank.
        group: As in `interleaved`.
    """
    p, m, v = ranks, microbatches, chunks
    group = group_size("interleaved-zb", p, m, group)
    forwards, backwards = virtual_order(m, v, group)
    total = m * v
    orders = []
    for rank in range(p):
        order = RankOrder()
        input_lag = min((v - 1) * group + (p - 1 - rank), total)
        weight_lag = input_lag + rank
        # Warm-up while only F is in range, steady while all three are, drain when F has run out.
        for i in range(total + weight_lag):
            if i < total:
                chunk, microbatch = forwards[i]
                order.F(chunk * p + rank, microbatch)
            if 0 <= i - input_lag < total:
                chunk, microbatch = backwards[i - input_lag]
                order.I(chunk * p + rank, microbatch)
            if 0 <= i - weight_lag < total:
                chunk, microbatch = backwards[i - weight_lag]
                order.W(chunk * p + rank, microbatch)
        orders.append(order)
    return Schedule.from_orders("interleaved-zb", Placement.loop(p, v), m, orders)


SPEC = ScheduleSpec(
    "interleaved-zb",
    build,
    "loop",
    "any p, m, v",
    "torch's InterleavedZeroBubble, after Qi et al. 2023, arXiv:2401.10241",
    ("chunks", "group"),
)
