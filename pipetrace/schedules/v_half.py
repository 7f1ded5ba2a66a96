"""V-Half: half of 1F1B's activations, at a small bubble (Qi, Wan, Amar and Lin 2024, "Pipeline Parallelism with
Controllable Memory", arXiv:2405.15362).

Forwards go down at one rank in two slots and come up at one a slot, gradients the same. An activation of rank r then
lives 3(p-r) + 3p slots on the way down and 3r on the way up: together 6p on every rank, of the 12p of 1F1B's.
"""

from __future__ import annotations

from pipetrace.costs import Costs
from pipetrace.schedule import Schedule
from pipetrace.schedules.building_block import Block, Drain, split_block, squeeze
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int, *, costs: Costs | None = None, memory: int | None = None) -> Schedule:
    """V-Half; two chunks a rank; any p, m.

    Args:
        ranks: p.
        microbatches: m.
        costs: What the order is fitted to; F = I = W = 1 and free transfers when None.
        memory: Chunks of activations in flight on a rank, released at W; at least 2. The schedule's own limit,
            (p+2)//2 microbatches of two chunks, when None or larger.
    """
    p, m = ranks, microbatches
    # With no more microbatches than ranks there is no steady state to drain: the block's order holds to the end, as in
    # the authors' own schedules, although a free drain would be shorter there (29 units instead of 34 at p = m = 4).
    drain = Drain(free=m > p)
    return squeeze("v-half", block(p), m, limit=2 * ((p + 2) // 2), memory=memory, costs=costs, drains=(drain,))


def block(ranks: int) -> Block:
    """The block on p ranks.

    From the first forward to the first gradient of a rank are 3(p-1) slots and two turns, modulo 6 another number for
    even p than for odd p; the turns keep the four passes apart in both.
    """
    return split_block(ranks, steps=(2, 1, 2, 1), turns=(1, 1, 2) if ranks % 2 else (1, 4, 2))


SPEC = ScheduleSpec(
    "v-half",
    build,
    "v",
    "any p, m; (p+2)//2 in flight",
    "Controllable Memory: Qi et al. 2024, arXiv:2405.15362",
    ("costs", "memory"),
)
