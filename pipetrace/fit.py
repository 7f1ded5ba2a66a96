"""Costs as they were measured, to simulate with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipetrace.action import ALL_TO_ALL_PARTS, COMPUTE_KINDS, NO_ACTION, Kind, Part, code_kind, code_part, code_stage
from pipetrace.costs import Costs, StageCosts
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.timeline import Timeline


def fit_costs(steps: Sequence[Timeline]) -> Costs:
    """The median duration of every stage's F, B, I and W over all microbatches, replicas and steps.

    Transfers are free and overlapped pairs cost what their halves do: an ideal at these costs is the schedule with
    this model's compute and nothing else. Where a stage has only full backwards, its I and W are unknown and stand
    as 0 beside B; where it has none, B is I + W.

    Of a schedule in parts of layers the same is fitted for every part, over all layers of a stage.

    Args:
        steps: Measured timelines of one schedule.
    """
    if any(code_part(step.code).any() for step in steps):
        return _fit_parts(steps)
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


def _fit_parts(steps: Sequence[Timeline]) -> Costs:
    tiles = [step.where(np.isin(code_kind(step.code), list(map(int, COMPUTE_KINDS)))) for step in steps]
    code = np.concatenate([tile.code for tile in tiles])
    duration = np.concatenate([tile.end - tile.start for tile in tiles])

    def median(stage: int, part: Part, *kinds: Kind) -> int | None:
        picked = duration[(code_stage(code) == stage) & (code_part(code) == part) & np.isin(code_kind(code), kinds)]
        return int(np.median(picked)) if picked.size else None

    def of(stage: int, part: Part) -> PartCosts:
        forward = median(stage, part, Kind.F) or 0
        if part in ALL_TO_ALL_PARTS:
            return PartCosts(forward, median(stage, part, Kind.I, Kind.B) or 0)
        split, whole, weight = (median(stage, part, kind) for kind in (Kind.I, Kind.B, Kind.W))
        if split is None:
            return PartCosts(forward, whole or 0)
        return PartCosts(forward, split, weight or 0)

    stages = np.unique(code_stage(code)).tolist()
    layers = {s: LayerCosts(**{part.name.lower(): of(s, part) for part in Part}) for s in stages}
    return Costs(stage_layers=layers)
