"""Compute that takes longer than it should: of a rank, a stage, a kind, or one action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    BoolArray,
    IntArray,
    Kind,
    code_kind,
    code_pipe,
    code_stage,
    code_text,
    is_all_to_all,
)
from pipetrace.diff.fault import Case, Fault, FaultKind
from pipetrace.diff.patterns import Cells, CellSet, FloatArray, Pattern, amounts_of, cells_of, explain, robust_deviation
from pipetrace.diff.replay import Inputs

LEAST_FACTOR = 0.01
"""Factors nearer to 1 than this, on a logarithmic scale, are no fault."""
LEAST_GAIN = 0.05
"""The same for what is faster: where it is a little, that is how the others' slowness looks from it."""
OUTLIER = 6.0  # robust standard deviations
_MOST_SINGLES = 4


def compute_faults(case: Case) -> list[Fault]:
    """Groups of actions that are slower or faster than the reference, then single ones."""
    work, inputs, reference = case.work, case.seen.inputs, case.reference
    usable = case.seen.known & reference.present & (reference.duration > 0) & (inputs.duration > 0)
    if not usable.any():
        return []
    paired = work.partner != NO_ACTION
    ratio = np.zeros(len(work))
    ratio[usable] = np.log(inputs.duration[usable] / reference.duration[usable])
    factor = np.ones(len(work))
    faults = []
    alone = np.flatnonzero(usable & ~paired)
    spread = 0.0
    if alone.size:
        cells, keys, weight = _cells(case, alone, ratio[alone])
        spread = cells.spread
        for pattern in amounts_of(cells, weight, explain(cells, weight, _sets(keys), LEAST_FACTOR)):
            share = _share(case, pattern, keys)
            if pattern.amount > 0 or pattern.amount < -LEAST_GAIN:
                faults.append(_fault(case, pattern.names, pattern.amount, share))
            factor *= 1 + (np.exp(pattern.amount) - 1) * share
    together = np.flatnonzero(usable & paired)
    if together.size:
        # What their halves explain is no fault of the pairs.
        left = ratio[together] - np.log(factor[together])
        ranks, of = np.unique(work.rank[together], return_inverse=True)
        weight = np.zeros(ranks.size)
        np.add.at(weight, of, reference.duration[together].astype(np.float64))
        sets = [CellSet("all overlapped pairs", np.ones(ranks.size, dtype=np.bool_))]
        sets += [CellSet(f"overlapped pairs of rank {rank}", ranks == rank) for rank in ranks.tolist()]
        for pattern in explain(cells_of(of, left, ranks.size, spread), weight, sets, LEAST_FACTOR):
            share = np.zeros(len(work))
            share[together] = pattern.cells[of]
            faults.append(_fault(case, pattern.names, pattern.amount, share))
            factor *= 1 + (np.exp(pattern.amount) - 1) * share
    return faults + _long_actions(case, usable, factor)


def _cells(case: Case, rows: IntArray, ratio: FloatArray) -> tuple[Cells, IntArray, FloatArray]:
    """Medians by (rank, pipe, stage, kind, whether it is an all-to-all), these as columns, and the time in each."""
    work = case.work
    columns = np.stack([column[rows] for column in _columns(case, work.code)], axis=1)
    keys, of = np.unique(columns, axis=0, return_inverse=True)
    of = of.ravel()
    weight = np.zeros(len(keys))
    np.add.at(weight, of, case.reference.duration[rows].astype(np.float64))
    return cells_of(of, ratio, len(keys)), keys, weight


def _sets(keys: IntArray) -> list[CellSet]:
    rank, pipe, stage, kind, travels = keys.T
    ones = np.ones(rank.size, dtype=np.bool_)
    if travels.any():
        apart = travels == 1
        sets = [CellSet("all all-to-alls", apart)]
        sets += [CellSet(f"all-to-alls of rank {r}", apart & (rank == r)) for r in np.unique(rank).tolist()]
        return sets + [CellSet(of.name, of.cells & ~apart) for of in _sets(np.where([0, 0, 0, 0, 1], 0, keys))]
    sets = [CellSet(f"rank {r}", rank == r) for r in np.unique(rank).tolist()]
    sets += [CellSet(f"stage {s}", stage == s) for s in np.unique(stage).tolist()]
    if np.unique(pipe).size > 1:
        for d, s in np.unique(np.stack([pipe, stage], axis=1), axis=0).tolist():
            sets.append(CellSet(f"stage {s} of pipe {d}", (pipe == d) & (stage == s)))
    sets.append(CellSet("all ranks", ones))
    for k in np.unique(kind).tolist():
        letter = Kind(k).name
        sets.append(CellSet(f"{letter} of all stages", kind == k))
        sets += [CellSet(f"{letter} of stage {s}", (kind == k) & (stage == s)) for s in np.unique(stage).tolist()]
        sets += [CellSet(f"{letter} of rank {r}", (kind == k) & (rank == r)) for r in np.unique(rank).tolist()]
    return sets


def _columns(case: Case, code: IntArray) -> tuple[IntArray, ...]:
    """Rank, pipe, stage, kind, and whether it is an all-to-all, of codes that stand in the rows; each of shape (n,)."""
    work = case.work
    return work.rank, code_pipe(code), code_stage(code), code_kind(code), is_all_to_all(code).astype(np.int64)


def _share(case: Case, pattern: Pattern, keys: IntArray) -> FloatArray:
    """What share of each row the pattern's cells make up, of a pair by its halves; shape (n,)."""
    work = case.work
    mine = pattern.cells
    known = {tuple(key) for key in keys[mine].tolist()}
    # Pairs may have halves of a kind that never runs alone: they go with the rest of their stage, or of their rank.
    chunks = {tuple(key[:3]) for key in keys.tolist() if not key[4]}
    whole = chunks - {tuple(key[:3]) for key in keys[~mine].tolist() if not key[4]}
    ranks = {key[0] for key in keys.tolist()} - {key[0] for key in keys[~mine].tolist() if not key[4]}

    def holds(code: IntArray) -> BoolArray:
        columns = _columns(case, code)
        of = [
            key in known or (not key[4] and (key[:3] in whole or (key[:3] not in chunks and key[0] in ranks)))
            for key in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return np.array(of, dtype=np.bool_)

    first = holds(work.code)
    paired = work.partner != NO_ACTION
    second = holds(np.where(paired, work.partner, work.code)) if paired.any() else first
    forward = np.where(paired, case.forward_share, 1.0)
    return np.where(work.in_schedule, first * forward + second * (1 - forward), 0.0)


def _fault(case: Case, names: Sequence[str], amount: float, share: FloatArray) -> Fault:
    factor, inputs = float(np.exp(amount)), case.seen.inputs
    healed = np.round(inputs.duration / (1 + (factor - 1) * share)).astype(np.int64)
    mine = case.seen.known & (share > 0)
    return Fault(
        FaultKind.COMPUTE,
        tuple(names),
        factor,
        int(mine.sum()),
        int((inputs.duration - healed)[mine].sum()),
        with_durations(case, healed),
        typical=round(float(np.median(case.reference.duration[mine]))) if mine.any() else 0,
    )


def with_durations(case: Case, duration: IntArray) -> Inputs:
    """What was measured, with other durations; outputs leave as much earlier or later."""
    inputs, work = case.seen.inputs, case.work
    shorter = (inputs.duration - duration)[work.producer]
    ready = np.clip(inputs.ready - shorter, 0, duration[work.producer])
    return inputs.but(duration=duration, ready=ready)


def _long_actions(case: Case, usable: BoolArray, factor: FloatArray) -> list[Fault]:
    inputs = case.seen.inputs
    rows = np.flatnonzero(usable)
    usual = case.reference.duration[rows] * factor[rows]
    return singles(case, rows, inputs.duration[rows] - usual, usual, FaultKind.LONG)


def singles(case: Case, rows: IntArray, over: FloatArray, scale: FloatArray, kind: FaultKind) -> list[Fault]:
    """Single actions that stick out of the rest by some ns; none where so many do that it is no exception.

    Args:
        case: Where.
        rows: Those that are looked at; shape (r,).
        over: ns by which each is more than its like; shape (r,).
        scale: What that varies with; shape (r,).
        kind: `LONG` or `DELAYED`.
    """
    share = over / scale
    varies = robust_deviation(share - float(np.median(share))) if over.size else 0.0
    limit = np.maximum(OUTLIER * varies * scale, max(case.floor, 1))
    out = np.flatnonzero(over > limit)
    if not out.size or out.size > max(3, rows.size // 25):
        return []
    found = []
    for at in out[np.argsort(-over[out], kind="stable")][:_MOST_SINGLES].tolist():
        row, size = int(rows[at]), round(float(over[at]))
        inputs, work = case.seen.inputs, case.work
        column = (inputs.duration if kind is FaultKind.LONG else inputs.gap).copy()
        column[row] = max(0, column[row] - size)
        healed = with_durations(case, column) if kind is FaultKind.LONG else inputs.but(gap=column)
        name = code_text(int(work.code[row]), int(work.partner[row]))
        found.append(Fault(kind, (name,), size, 1, size, healed))
    return found
