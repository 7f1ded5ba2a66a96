"""MoE 1F1B: interleaved 1F1B whose steady state is overlapped pairs, as in Megatron-LM's combined 1F1B (its
`overlap_moe_expert_parallel_comm`).

Where interleaved 1F1B alternates F and B, one microbatch's forward and another's backward run as one F&B, so that the
all-to-alls of each hide behind the compute of the other. That takes one forward more ahead.
"""

from __future__ import annotations

from pipetrace.action import Action, Kind, Pair
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.interleaved import group_size, virtual_order, warmup
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int, *, chunks: int = 2, group: int | None = None) -> Schedule:
    """MoE 1F1B.

    Args:
        ranks: p.
        microbatches: m.
        chunks: v, stages a rank.
        group: As in `interleaved`.
    """
    p, m, v = ranks, microbatches, chunks
    group = group_size("moe-1f1b", p, m, group)
    forwards, backwards = virtual_order(m, v, group)
    total = m * v
    orders = []
    for rank in range(p):
        order = RankOrder()
        ahead = min(warmup(p, v, group, rank) + 1, total)
        # Warm-up: one forward more than in interleaved 1F1B, so that a pair's forward and backward differ.
        for chunk, i in forwards[:ahead]:
            order.F(chunk * p + rank, i)
        # Steady: pairs.
        for (chunk, i), (back_chunk, j) in zip(forwards[ahead:], backwards, strict=False):
            order.append(Pair(Action(Kind.F, chunk * p + rank, i), Action(Kind.B, back_chunk * p + rank, j)))
        # Drain: the backwards that are left.
        for chunk, i in backwards[total - ahead :]:
            order.B(chunk * p + rank, i)
        orders.append(order)
    return Schedule.from_orders("moe-1f1b", Placement.loop(p, v), m, orders)


SPEC = ScheduleSpec(
    "moe-1f1b", build, "loop", "any p, m, v", "Megatron-LM's combined 1F1B for MoE overlap", ("chunks", "group")
)
