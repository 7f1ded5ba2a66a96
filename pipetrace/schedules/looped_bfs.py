"""Looped BFS: all microbatches through a chunk before the next chunk (Lamy-Poirier 2022, "Breadth-First Pipeline
Parallelism", arXiv:2211.05953).

The bubble of interleaved 1F1B at GPipe's memory; what it wins is that a chunk's weights are gathered, and its
gradients reduced, once a step.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int, *, chunks: int = 2) -> Schedule:
    """Looped BFS with the backwards last microbatch first, as torch runs it.

    Args:
        ranks: p.
        microbatches: m.
        chunks: v, stages a rank.
    """
    p, m, v = ranks, microbatches, chunks
    require(v >= 1, f"looped-bfs with {v} chunks a rank", "give at least 1 (-v)")
    orders = []
    for rank in range(p):
        order = RankOrder()
        stages = range(rank, p * v, p)
        for stage in stages:
            for i in range(m):
                order.F(stage, i)
        for stage in reversed(stages):
            for i in reversed(range(m)):
                order.B(stage, i)
        orders.append(order)
    return Schedule.from_orders("looped-bfs", Placement.loop(p, v), m, orders)


SPEC = ScheduleSpec("looped-bfs", build, "loop", "any p, m, v", "Lamy-Poirier 2022, arXiv:2211.05953", ("chunks",))
