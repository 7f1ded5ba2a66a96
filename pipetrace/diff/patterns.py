"""Which rank, stage or link differs from the rest: the simplest sets that explain a table of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipetrace.action import BoolArray, IntArray

FloatArray = npt.NDArray[np.float64]

SIGNIFICANT = 5.0  # times its own standard error
_MOST = 6
_FEW_INSIDE = 6  # neighbours of one group, below which those of two groups are looked at as well
_FEW_TELL_LITTLE = 3.0  # of n deviations the median may be too small by about this share of it
_COMMON = 3.0  # times its standard error: what values of no pattern have in common is no chance
_HUBER, _ROUNDS = 1.5, 25


@dataclass(frozen=True, slots=True, eq=False)
class CellSet:
    """Cells that could have one cause.

    Args:
        name: The cause, e.g. "rank 2".
        cells: Which; shape (cells,).
    """

    name: str
    cells: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A shift that some cells have in common.

    Args:
        names: All sets of just these cells: causes that give the same run.
        cells: Which; shape (cells,).
        amount: By how much, over what the other cells have.
    """

    names: tuple[str, ...]
    cells: BoolArray
    amount: float


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Medians of groups of values.

    Args:
        of: The group of each value, counted from 0; shape (n,).
        values: They; shape (n,).
        value: Median of each group; shape (cells,).
        error: Standard error of it; shape (cells,).
        count: Values in it; shape (cells,).
        spread: Robust standard deviation of single values around their group's median, over all groups.
    """

    of: IntArray
    values: FloatArray
    value: FloatArray
    error: FloatArray
    count: IntArray
    spread: float


def cells_of(groups: IntArray, values: FloatArray, cells: int, least: float = 0.0) -> Cells:
    """The medians of groups, with their errors from the spread inside all groups.

    Args:
        groups: Of each value, from 0; shape (n,).
        values: Likewise.
        cells: How many groups.
        least: What is known of the spread from elsewhere, where there are few values.
    """
    median = np.zeros(cells)
    order = np.argsort(groups, kind="stable")
    first = np.searchsorted(groups[order], np.arange(cells + 1))
    for cell in range(cells):
        mine = values[order[first[cell] : first[cell + 1]]]
        median[cell] = np.median(mine) if mine.size else 0.0
    count = np.diff(first)
    spread = max(least, spread_of(groups, values))
    return Cells(groups, values, median, 1.2533 * spread / np.sqrt(np.maximum(count, 1)), count, spread)


def spread_of(groups: IntArray, values: FloatArray) -> float:
    """The standard deviation of single values inside their groups; of the groups' own where they have one value each.

    Neighbours of one group are held against each other: deviations from a median of few values would be too small, that
    of one of them being 0.

    Args:
        groups: Of each value; those that are alike have neighbouring numbers; shape (n,).
        values: Likewise.
    """
    order = np.argsort(groups, kind="stable")
    inside = groups[order][1:] == groups[order][:-1]
    if inside.sum() < _FEW_INSIDE:
        inside[:] = True
    between: FloatArray = np.diff(values[order])[inside] / np.sqrt(2)
    return robust_deviation(between) * (1 + _FEW_TELL_LITTLE / max(1, between.size))


def robust_deviation(values: FloatArray) -> float:
    """The standard deviation of values around 0 by the median of their sizes; single outliers do not count."""
    return float(1.4826 * np.median(np.abs(values))) if values.size else 0.0


def explain(of: Cells, weight: FloatArray, sets: Sequence[CellSet], floor: float) -> list[Pattern]:
    """The sets of cells that differ from 0, the one that explains most first.

    A set's shift is the weighted median of its cells over that of the others, where these are shifted the same way; it
    explains by how much it lessens Σ weight × square. One after the other is found and taken out, until none is both
    significant and above the floor. What all cells have in common comes out as a set of its own. Most of a set's values
    must share its shift, and two at least: one value that sticks out is no property of its rank, stage or link.

    Args:
        of: The cells; 0 where nothing is odd.
        weight: How much each matters; shape (cells,).
        sets: What could be the cause.
        floor: Shifts up to it are not looked at.
    """
    left = of.value.copy()
    found: list[Pattern] = []
    for _ in range(_MOST):
        best: tuple[float, CellSet, float] | None = None
        for candidate in sets:
            cells = candidate.cells & (weight > 0)
            if not cells.any():
                continue
            shift = weighted_median(left[cells], weight[cells])
            others = (weight > 0) & ~cells
            if others.any():
                beside = weighted_median(left[others], weight[others])
                shift -= min(max(beside, min(shift, 0.0)), max(shift, 0.0))
            error = float(np.sqrt((weight[cells] ** 2 * of.error[cells] ** 2).sum()) / weight[cells].sum())
            if abs(shift) <= max(floor, SIGNIFICANT * error):
                continue
            if not _is_shared(of.values - of.value[of.of] + left[of.of], cells[of.of], shift):
                continue
            gain = float((weight[cells] * (left[cells] ** 2 - (left[cells] - shift) ** 2)).sum())
            if gain > 0 and (best is None or gain > best[0] * (1 + 1e-9)):
                best = gain, candidate, shift
        if best is None:
            break
        _, chosen, shift = best
        alike = [s.name for s in sets if np.array_equal(s.cells & (weight > 0), chosen.cells & (weight > 0))]
        left[chosen.cells] -= shift
        # What was taken for more before another set was known comes a second time, to be put right.
        again = next((i for i, old in enumerate(found) if old.names == tuple(alike)), None)
        if again is None:
            found.append(Pattern(tuple(alike), chosen.cells, shift))
        else:
            found[again] = replace(found[again], amount=found[again].amount + shift)
    return [pattern for pattern in found if abs(pattern.amount) > floor]


def _is_shared(values: FloatArray, mine: BoolArray, shift: float) -> bool:
    """Whether more than half of some values, and two at least, are shifted by half of a shift or more."""
    shifted = int((values[mine] * np.sign(shift) >= abs(shift) / 2).sum())
    return shifted >= 2 and 2 * shifted > int(mine.sum())


def amounts_of(of: Cells, weight: FloatArray, patterns: Sequence[Pattern]) -> list[Pattern]:
    """Patterns with their amounts told from all values at once.

    `explain` goes by medians of cells, one set after the other, which finds the right sets; how much each is follows
    better from all values together: the least weighted squares, with what lies far off its cell's like counting less
    (Huber's weights). Values that are in no pattern are at 0, or at what they have in common where that is no chance.

    Args:
        of: The cells.
        weight: How much each matters; shape (cells,).
        patterns: What `explain` found in them.
    """
    if not patterns or not of.values.size:
        return list(patterns)
    members = np.stack([pattern.cells for pattern in patterns], axis=1)
    others = ~members.any(axis=1) & (weight > 0)
    if others.any():
        mine = others[of.of]
        error = 1.2533 * of.spread / np.sqrt(mine.sum())
        if mine.sum() >= 2 and abs(float(np.median(of.values[mine]))) > _COMMON * error:
            members = np.concatenate([members, np.ones((len(members), 1), dtype=np.bool_)], axis=1)
    design = members[of.of].astype(np.float64)
    each = (weight / np.maximum(of.count, 1))[of.of]
    amounts = np.array([pattern.amount for pattern in patterns] + [0.0] * (design.shape[1] - len(patterns)))
    for _ in range(_ROUNDS):
        off = np.abs(of.values - design @ amounts)
        limit = _HUBER * max(of.spread, 1e-12)
        root = np.sqrt(each * np.minimum(1.0, limit / np.maximum(off, limit)))
        amounts = np.linalg.lstsq(design * root[:, None], of.values * root, rcond=None)[0]
    return [
        replace(pattern, amount=float(amount)) if np.sign(amount) == np.sign(pattern.amount) else pattern
        for pattern, amount in zip(patterns, amounts[: len(patterns)].tolist(), strict=True)
    ]


def weighted_median(values: FloatArray, weight: FloatArray) -> float:
    """The value below which half of the weight lies; of two in the middle their mean."""
    order = np.argsort(values, kind="stable")
    values, total = values[order], np.cumsum(weight[order])
    half = total[-1] / 2
    low = int(np.searchsorted(total, half * (1 - 1e-12)))
    high = int(np.searchsorted(total, half * (1 + 1e-12)))
    return float((values[low] + values[min(high, values.size - 1)]) / 2)
