"""What stands at the end of a step: gradient reduction and optimiser."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipetrace.action import Action, IntArray, Kind
from pipetrace.costs import Costs
from pipetrace.schedule import Schedule


def after_step(schedule: Schedule, costs: Costs, free: IntArray) -> Mapping[str, IntArray]:
    """The tiles of gradient reduction and optimiser, stage by stage.

    Where several pipes hold a stage their ranks reduce together, once all of them have come to it. The optimiser of a
    rank's stages follows.

    Args:
        schedule: What was run.
        costs: Of each stage; what costs nothing leaves no tile.
        free: ns at which each rank has run its list; shape (ranks,).

    Returns:
        Columns `rank`, `code`, `start`, `end`.
    """
    placement = schedule.placement
    clock: list[int] = free.tolist()
    tiles: list[tuple[int, int, int, int]] = []
    for kind, duration_of in ((Kind.REDUCE_GRAD, "reduce_grad"), (Kind.OPTIM, "optim")):
        for stage in range(placement.stages):
            duration = getattr(costs.of(stage), duration_of)
            if not duration:
                continue
            holders = [placement.rank(stage, pipe) for pipe in range(placement.pipes)]
            together = max(clock[rank] for rank in holders)
            for pipe, rank in enumerate(holders):
                start = together if kind is Kind.REDUCE_GRAD else clock[rank]
                clock[rank] = start + duration
                tiles.append((rank, Action(kind, stage, pipe=pipe).code, start, start + duration))
    table = np.array(tiles, dtype=np.int64).reshape(-1, 4)
    return dict(zip(("rank", "code", "start", "end"), table.T, strict=True))
