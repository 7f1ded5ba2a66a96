"""1F1B-V: 1F1B on a V, with full backwards and two thirds of 1F1B's activations (Qi, Wan, Amar and Lin 2024, "Pipeline
Parallelism with Controllable Memory", arXiv:2405.15362).

One pipe folded in half: forwards go down and up at one rank a slot, backwards at one in two slots, their own length,
or later where the slots are taken.
"""

from __future__ import annotations

from pipetrace.costs import Costs
from pipetrace.schedule import Schedule
from pipetrace.schedules.building_block import PERIOD, Block, Drain, squeeze
from pipetrace.schedules.spec import ScheduleSpec


def build(ranks: int, microbatches: int, *, costs: Costs | None = None, memory: int | None = None) -> Schedule:
    """1F1B-V; two chunks a rank; any p, m.

    Args:
        ranks: p.
        microbatches: m.
        costs: What the order is fitted to; F = I = W = 1, B = 2 and free transfers when None.
        memory: Chunks of activations in flight on a rank; at least 2. The schedule's own limit, the least whole number
            of microbatches from (2p+1)/3 on, two chunks each, when None or larger.
    """
    p, m = ranks, microbatches
    limit = 2 * ((2 * p + 3) // 3)
    drains = (Drain(), Drain(hurry_up=True))
    return squeeze("1f1b-v", block(p), m, limit=limit, memory=memory, costs=costs, drains=drains)


def block(ranks: int) -> Block:
    """The block on p ranks: each backward in the first slots that leave room for the rank's other one."""
    p = ranks
    forward_down, forward_up = list(range(p)), [2 * p - 1 - rank for rank in range(p)]
    taken = [{down % PERIOD, up % PERIOD} for down, up in zip(forward_down, forward_up, strict=True)]
    backwards: tuple[list[int], list[int]] = ([0] * p, [0] * p)
    slot = 2 * p
    for starts, way, later in zip(backwards, (range(p), range(p - 1, -1, -1)), (1, 0), strict=True):
        for rank in way:
            while not _fits(taken[rank], slot, later):
                slot += 1
            taken[rank] |= _slots(slot)
            starts[rank] = slot
            slot += 2
    return Block(tuple(tuple(starts) for starts in (forward_down, forward_up, *backwards)))


def _slots(slot: int) -> set[int]:
    """The two slots of a backward, modulo the period."""
    return {slot % PERIOD, (slot + 1) % PERIOD}


def _fits(taken: set[int], slot: int, later: int) -> bool:
    """Whether a backward finds its slots free and, with `later`, leaves two adjacent ones for another."""
    mine = _slots(slot)
    if mine & taken:
        return False
    return not later or any(not _slots(other) & (taken | mine) for other in range(PERIOD))


SPEC = ScheduleSpec(
    "1f1b-v",
    build,
    "v",
    "any p, m; (2p+3)//3 in flight",
    "Controllable Memory: Qi et al. 2024, arXiv:2405.15362",
    ("costs", "memory"),
)
