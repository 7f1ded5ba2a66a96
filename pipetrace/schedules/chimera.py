"""Chimera: pipes in both directions, one's forwards in the other's bubbles (Li and Hoefler 2021, "Chimera: Efficiently
Training Large-Scale Neural Networks with Bidirectional Pipelines", arXiv:2107.06925).

The step is a row of units of p microbatches. A unit gives each of 2f pipes p/(2f) of them, and with a slot an action
(F = B) every pipe is a 1F1B of its own in which a stage is busy every second slot. Down pipes and up pipes use the
other's free slots, and each unit's first forwards use the bubbles at the end of the unit before.
"""

from __future__ import annotations

from pipetrace.action import Kind
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int, *, pipes: int = 2) -> Schedule:
    """Chimera with 2f pipes.

    Args:
        ranks: p, even.
        microbatches: m >= p, a multiple of `pipes`; pipe k holds the k-th run of m/pipes of them.
        pipes: 2f with f dividing p/2: the paper's generalisation (its section 3.6). Pair i puts stage s of its down
            pipe on rank (s + i p/f) mod p, its up pipe mirrored.
    """
    p, m = ranks, microbatches
    require(p % 2 == 0, f"chimera on {p} ranks", "it mirrors the ranks, so their number is even")
    require(
        pipes >= 2 and pipes % 2 == 0 and p % pipes == 0,
        f"chimera on {p} ranks with {pipes} pipes",
        "the pipes are 2f with f dividing half the ranks",
    )
    require(
        m >= p and m % pipes == 0,
        f"chimera on {p} ranks with {m} microbatches",
        f"it needs at least {p}, a multiple of the {pipes} pipes",
    )
    placement = Placement.mirrored(p, pipes)
    of_pipe, of_unit = m // pipes, p // pipes
    slots: list[list[tuple[int, Kind, int, int, int]]] = [[] for _ in range(p)]
    for pipe in range(pipes):
        for stage in range(p):
            for i in range(of_pipe):
                unit, within = divmod(i, of_unit)
                # There are 2p slots of work in a unit, so the next one begins 2p later.
                begin = 2 * p * unit + 2 * within
                action = (stage, pipe * of_pipe + i, pipe)
                mine = slots[placement.rank(stage, pipe)]
                mine.append((begin + stage, Kind.F, *action))
                mine.append((begin + 2 * p - 1 - stage, Kind.B, *action))
    orders = []
    for mine in slots:
        order = RankOrder()
        for _, kind, stage, microbatch, pipe in sorted(mine):
            append = order.F if kind is Kind.F else order.B
            append(stage, microbatch, pipe)
        orders.append(order)
    return Schedule.from_orders("chimera", placement, m, orders)


SPEC = ScheduleSpec(
    "chimera",
    build,
    "mirrored",
    "p even; m >= p; pipes divide p and m",
    "Li and Hoefler 2021, arXiv:2107.06925",
    ("pipes",),
)
