"""Actions that are missing, more than the schedule has, or ran at another place of their rank's list."""

from __future__ import annotations

import numpy as np

from pipetrace.action import BoolArray, IntArray, code_text
from pipetrace.diff.fault import Case, Fault, FaultKind
from pipetrace.diff.replay import Inputs
from pipetrace.links import NO_ROW

MOST_NAMED = 6


def order_faults(case: Case) -> list[Fault]:
    """What is missing, extra or reordered; of ranks that were not recorded nothing is missing."""
    work, seen = case.work, case.seen
    recorded = np.isin(work.rank, seen.recorded)
    faults = []
    gone = work.in_schedule & ~seen.known & recorded
    if gone.any():
        faults.append(_fault(case, FaultKind.MISSING, gone, _with_missing(case, gone)))
    extra = ~work.in_schedule & seen.known
    if extra.any():
        inputs = seen.inputs
        without = inputs.but(
            duration=np.where(extra, 0, inputs.duration),
            gap=np.where(extra, 0, inputs.gap),
            present=inputs.present & ~extra,
        )
        faults.append(_fault(case, FaultKind.EXTRA, extra, without))
    if case.of.reordered:
        faults += _reordered(case)
    return faults


def _fault(case: Case, kind: FaultKind, rows: BoolArray, healed: Inputs) -> Fault:
    work = case.work
    at = np.flatnonzero(rows)
    texts = [
        code_text(code, partner)
        for code, partner in zip(work.code[at].tolist(), work.partner[at].tolist(), strict=True)
    ]
    base = case.reference.duration if kind is FaultKind.MISSING else case.seen.inputs.duration
    return Fault(kind, (_listed(texts),), at.size, at.size, int(base[at].sum()), healed)


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED:,} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def _with_missing(case: Case, gone: BoolArray) -> Inputs:
    """What was measured, and what is missing in the reference's time."""
    work, seen, reference = case.work, case.seen, case.reference
    inputs = seen.inputs
    here = seen.known | gone
    back = ~seen.moved & here[work.producer] & here[work.consumer]
    # What waited for something missing had that in its gap.
    told = np.ones(len(work), dtype=np.bool_)
    np.logical_and.at(told, work.consumer, ~back)
    return Inputs(
        duration=np.where(gone, reference.duration, inputs.duration),
        gap=np.where(told & ~gone, inputs.gap, 0),
        ready=np.where(gone[work.producer], reference.ready, inputs.ready),
        delay=np.where(back, reference.delay, inputs.delay),
        anchor=np.where(back, NO_ROW, inputs.anchor),
        after=np.where(back, reference.after, inputs.after),
        time=np.where(back, reference.time, inputs.time),
        present=inputs.present | gone,
    )


def _reordered(case: Case) -> list[Fault]:
    """The fault that the order is; two actions that changed places are both named."""
    work, seen = case.work, case.seen
    codes = np.array([action.code for action in case.of.reordered], dtype=np.int64)
    moved = np.unique(work.rows_of.find(codes))
    names = [_place(case, row) for row in moved.tolist()]
    return [
        Fault(
            FaultKind.ORDER,
            (_listed(names),),
            len(names),
            len(names),
            int(seen.inputs.duration[moved].sum()),
            seen.inputs,
            in_ideal_order=True,
        )
    ]


def _place(case: Case, row: int) -> str:
    """An action that moved, and past what."""
    work, graph = case.work, case.graph
    mine = np.flatnonzero((work.rank == work.rank[row]) & case.seen.known & work.in_schedule)
    ideal, measured = mine[np.argsort(graph.position[mine])], mine[np.argsort(case.seen.graph.position[mine])]
    at, now = _index(ideal, row), _index(measured, row)
    action = code_text(int(work.code[row]), int(work.partner[row]))
    if abs(at - now) == 1 and ideal[now] == measured[at]:
        other = int(ideal[now])
        return f"{action} and {code_text(int(work.code[other]), int(work.partner[other]))} (changed places)"
    passed = abs(at - now)
    way = "later" if now > at else "earlier"
    return f"{action} ({passed} place{'s' if passed > 1 else ''} {way})" if passed else action


def _index(rows: IntArray, row: int) -> int:
    return int(np.flatnonzero(rows == row)[0])
