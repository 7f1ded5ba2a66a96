"""V-Min: the least activations of a V, a third of 1F1B's (Qi, Wan, Amar and Lin 2024, "Pipeline Parallelism with
Controllable Memory", arXiv:2405.15362).

All passes go at one rank a slot, so that an activation of rank r lives 2(p-r) + 2p slots on the way down and 2r on the
way up: together 4p on every rank, of the 12p of 1F1B's. Nothing is left to absorb what is longer than a slot, so that
the bubble grows with m where F, I and W differ.
"""

from __future__ import annotations

from pipetrace.costs import Costs
from pipetrace.schedule import Schedule
from pipetrace.schedules.building_block import Block, split_block, squeeze
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int, *, costs: Costs | None = None, memory: int | None = None) -> Schedule:
    """V-Min; two chunks a rank; any p, m.

    Args:
        ranks: p.
        microbatches: m.
        costs: What the order is fitted to; F = I = W = 1 and free transfers when None.
        memory: Chunks of activations in flight on a rank, released at W; at least 2. The schedule's own limit,
            (p+4)//3 microbatches of two chunks, when None or larger.
    """
    p, m = ranks, microbatches
    return squeeze("v-min", block(p), m, limit=2 * ((p + 4) // 3), memory=memory, costs=costs)


def block(ranks: int) -> Block:
    """The block on p ranks.

    From a rank's forward to its gradient of the same direction are 2p slots, a multiple of the period where 3 divides
    p: there the gradients set out two slots later.
    """
    return split_block(ranks, steps=(1, 1, 1, 1), turns=(1, 1, 1) if ranks % 3 else (1, 3, 1))


SPEC = ScheduleSpec(
    "v-min",
    build,
    "v",
    "any p, m; (p+4)//3 in flight",
    "Controllable Memory: Qi et al. 2024, arXiv:2405.15362",
    ("costs", "memory"),
)
