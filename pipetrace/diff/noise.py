"""How much a step's makespan would differ from itself if nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipetrace.action import IntArray
from pipetrace.diff.fault import Case
from pipetrace.diff.observe import NOBODY
from pipetrace.diff.patterns import robust_deviation, spread_of
from pipetrace.diff.replay import Inputs

_REPLAYS = 16
_CLIP = 4.0  # standard deviations: what sticks out further is a fault, not noise
_LEAST_STEPS = 3
_FEW_ALIKE = 4


@dataclass(frozen=True, slots=True)
class Noise:
    """By how much a makespan varies.

    Args:
        makespan: Standard deviation in ns of replays of this one step, whose actions, transfers and gaps draw their
            times anew, each from those of its like.
        steps: The same of the measured steps, by their median deviation; None where there are fewer than three.
    """

    makespan: int
    steps: int | None


def noise_of(case: Case, makespans: Sequence[int]) -> Noise:
    """The noise of a measured step.

    Args:
        case: The step.
        makespans: ns of all measured steps.
    """
    drawn = round(float(np.std(case.seen.graph.makespans(_drawn(case)))))
    if len(makespans) < _LEAST_STEPS:
        return Noise(drawn, None)
    values = np.array(makespans, dtype=np.float64)
    return Noise(drawn, round(robust_deviation(values - np.median(values))))


def _drawn(case: Case) -> list[Inputs]:
    work, inputs = case.work, case.seen.inputs
    rng = np.random.default_rng(0)
    tile = np.stack([work.rank, work.pipe, work.stage, work.kind, case.seen.known], axis=1)
    of_tile = np.unique(tile, axis=0, return_inverse=True)[1].ravel()
    # Of like there may be one or two: then all vary by as much of their own as the others do.
    usable = case.seen.known & (case.reference.duration > 0) & (inputs.duration > 0)
    ratio = np.log(inputs.duration[usable] / case.reference.duration[usable])
    varies = spread_of(of_tile[usable], ratio) if usable.any() else 0.0
    few = (np.bincount(of_tile)[of_tile] < _FEW_ALIKE) & usable
    # How long one waits for a rank that was not recorded is nobody's noise.
    of_rank = np.where(case.seen.awaits == NOBODY, work.rank * 2 + case.seen.known, -1 - np.arange(len(work)))
    of_link = work.link * 2 + case.seen.moved
    replays = []
    for _ in range(_REPLAYS):
        duration = _redrawn(rng, inputs.duration, of_tile)
        drawn = np.round(inputs.duration * np.exp(varies * rng.standard_normal(len(work)))).astype(np.int64)
        duration = np.where(few, drawn, duration)
        change = (duration - inputs.duration)[work.producer]
        replays.append(
            inputs.but(
                duration=duration,
                gap=_redrawn(rng, inputs.gap, of_rank),
                time=_redrawn(rng, inputs.time, of_link),
                ready=np.clip(inputs.ready + change, 0, duration[work.producer]),
            )
        )
    return replays


def _redrawn(rng: np.random.Generator, values: IntArray, groups: IntArray) -> IntArray:
    """Values with their deviation from their group's median drawn anew from the group's."""
    if not values.size:
        return values
    order = np.argsort(groups, kind="stable")
    first = np.flatnonzero(np.concatenate([[True], np.diff(groups[order]) != 0]))
    sizes = np.diff(np.append(first, order.size))
    drawn = values.copy()
    for begin, size in zip(first.tolist(), sizes.tolist(), strict=True):
        mine = order[begin : begin + size]
        median = np.median(values[mine])
        off: npt.NDArray[np.float64] = values[mine] - median
        limit = _CLIP * robust_deviation(off)
        drawn[mine] = np.maximum(np.round(median + np.clip(rng.choice(off, size), -limit, limit)), min(0, int(median)))
    return drawn
