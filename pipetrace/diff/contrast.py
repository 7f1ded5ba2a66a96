"""The same kind of action here and there: on one stage against another, and while something travels against alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind, code_part, code_stage, whole_stage
from pipetrace.timeline import Lane, Timeline

_MOSTLY, _HARDLY = 0.5, 0.05
_LEAST = 3  # of each


@dataclass(frozen=True, slots=True)
class StageShare:
    """What one stage takes for a microbatch.

    Args:
        stage: Which.
        median: ns of each kind that runs alone, by its letter.
        total: Their sum, ns: F and B, or F, I and W.
        ratio: That against the mean over the stages.
    """

    stage: int
    median: Mapping[str, int]
    total: int
    ratio: float


def stage_balance(steps: Sequence[Timeline]) -> list[StageShare]:
    """What each stage takes, over all replicas and steps: an embedding or a head shows in the first or the last.

    Args:
        steps: Measured timelines of one schedule. Overlapped pairs are left out: their halves' shares are not known.
    """
    tiles = [step.where(step.is_compute & (step.partner == NO_ACTION)) for step in steps]
    if not tiles:
        return []
    code = np.concatenate([tile.code for tile in tiles])
    duration = np.concatenate([tile.end - tile.start for tile in tiles])
    if (code_part(code) != 0).any():
        code, duration = _whole(tiles)
    stages: dict[int, dict[str, int]] = {}
    for stage in np.unique(code_stage(code)).tolist():
        mine = code_stage(code) == stage
        kinds = np.unique(code_kind(code[mine])).tolist()
        stages[stage] = {Kind(kind).name: int(np.median(duration[mine & (code_kind(code) == kind)])) for kind in kinds}
    # Where some backwards are split and some are not, either is all of it.
    totals = {
        stage: of.get("F", 0) + (of["I"] + of["W"] if {"I", "W"} <= of.keys() else of.get("B", 0))
        for stage, of in stages.items()
    }
    mean = sum(totals.values()) / len(totals) if totals else 0.0
    return [StageShare(stage, stages[stage], total, total / mean if mean else 1.0) for stage, total in totals.items()]


def _whole(tiles: Sequence[Timeline]) -> tuple[IntArray, IntArray]:
    """Actions that are in parts of layers as wholes: their codes, and the sums of their parts."""
    codes, sums = [], []
    for tile in tiles:
        keys = np.stack([whole_stage(tile.code), tile.replica], axis=1)
        which, of = np.unique(keys, axis=0, return_inverse=True)
        codes.append(which[:, 0])
        sums.append(np.bincount(of.ravel(), tile.end - tile.start).astype(np.int64))
    return np.concatenate(codes), np.concatenate(sums)


@dataclass(frozen=True, slots=True)
class Overlapped:
    """A kind of action on one stage, while its rank sends or receives, and alone.

    Args:
        stage, kind: Which.
        overlapped, alone: Median ns.
        counts: How many of each.
    """

    stage: int
    kind: str
    overlapped: int
    alone: int
    counts: tuple[int, int]

    @property
    def ratio(self) -> float:
        """Overlapped against alone."""
        return self.overlapped / self.alone if self.alone else 1.0


def overlapped_against_alone(steps: Sequence[Timeline]) -> list[Overlapped]:
    """Durations of the same actions with most of them beside a transfer of their rank, and with hardly any.

    Kinds of which there are fewer than three of either are left out.

    Args:
        steps: Measured timelines of one schedule.
    """
    rows: list[tuple[IntArray, IntArray, np.typing.NDArray[np.float64]]] = []
    for step in steps:
        tiles = step.where(step.is_compute & (step.partner == NO_ACTION) & (step.replica == 0))
        moving = step.where((step.lane != Lane.COMPUTE) & (step.replica == 0) & (step.end > step.start))
        if not len(moving):
            continue
        rows.append((tiles.code, tiles.end - tiles.start, _beside(tiles, moving)))
    if not rows:
        return []
    code, duration, share = (np.concatenate(column) for column in zip(*rows, strict=True))
    found = []
    keys = np.unique(np.stack([code_stage(code), code_kind(code)], axis=1), axis=0)
    for stage, kind in keys.tolist():
        mine = (code_stage(code) == stage) & (code_kind(code) == kind)
        both = duration[mine & (share >= _MOSTLY)], duration[mine & (share <= _HARDLY)]
        if min(both[0].size, both[1].size) >= _LEAST:
            medians = [int(np.median(part)) for part in both]
            found.append(Overlapped(stage, Kind(kind).name, medians[0], medians[1], (both[0].size, both[1].size)))
    return found


def _beside(tiles: Timeline, moving: Timeline) -> np.typing.NDArray[np.float64]:
    """What share of each tile lies beside a transfer of its rank; shape (n,)."""
    share = np.zeros(len(tiles))
    for rank in np.unique(moving.rank).tolist():
        mine, other = tiles.rank == rank, moving.rank == rank
        order = np.argsort(moving.start[other], kind="stable")
        start, end = moving.start[other][order], moving.end[other][order]
        reached = np.maximum.accumulate(end)
        start = np.maximum(start, np.concatenate([start[:1], reached[:-1]]))
        end = np.maximum(end, start)
        after = np.cumsum(end - start)
        corners = np.column_stack([start, end]).ravel().astype(np.float64)
        covered = np.column_stack([after - (end - start), after]).ravel().astype(np.float64)
        within = np.interp(tiles.end[mine], corners, covered) - np.interp(tiles.start[mine], corners, covered)
        share[mine] = within / np.maximum(tiles.end[mine] - tiles.start[mine], 1)
    return share
