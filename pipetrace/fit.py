"""Costs as they were measured, to simulate with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipetrace.action import NO_ACTION, Kind, code_kind, code_stage
from pipetrace.costs import Costs, StageCosts
from pipetrace.timeline import Timeline


def fit_costs(steps: Sequence[Timeline]) -> Costs:
    """The median duration of every stage's F, B, I and W over all microbatches, replicas and steps.

    Transfers are free and overlapped pairs cost what their halves do: an ideal at these costs is the schedule with
    this model's compute and nothing else. Where a stage has only full backwards, its I and W are unknown and stand
    as 0 beside B; where it has none, B is I + W.

    Args:
        steps: Measured timelines of one schedule.
    """
    tiles = [step.where(step.is_compute & (step.partner == NO_ACTION)) for step in steps]
    stage = np.concatenate([code_stage(tile.code) for tile in tiles])
    kind = np.concatenate([code_kind(tile.code) for tile in tiles])
    duration = np.concatenate([tile.end - tile.start for tile in tiles])

    def median(of_stage: int, letter: Kind) -> int | None:
        picked = duration[(stage == of_stage) & (kind == letter)]
        return int(np.median(picked)) if picked.size else None

    return Costs(
        stages={
            s: StageCosts(
                F=median(s, Kind.F) or 0, I=median(s, Kind.I) or 0, W=median(s, Kind.W) or 0, B=median(s, Kind.B)
            )
            for s in np.unique(stage).tolist()
        }
    )
