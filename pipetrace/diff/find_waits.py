"""What comes late though the compute does not: transfers, posts, and pauses of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipetrace.action import BoolArray, IntArray, code_text
from pipetrace.diff.fault import Case, Fault, FaultKind
from pipetrace.diff.find_compute import OUTLIER, singles
from pipetrace.diff.observe import NOBODY
from pipetrace.diff.patterns import CellSet, FloatArray, amounts_of, cells_of, explain, robust_deviation
from pipetrace.diff.replay import NEVER, Inputs


def link_faults(case: Case) -> list[Fault]:
    """Links whose transfers take longer than the reference's."""
    seen, work = case.seen, case.work
    told = seen.tracked & (case.reference.time > NEVER)
    # What was seen to the end counts; a link of which nothing was seen has its bounds.
    for link in np.unique(work.link[told]).tolist():
        mine = told & (work.link == link)
        if (mine & seen.seen).any():
            told &= ~mine | seen.seen
    over = (seen.inputs.time - case.reference.time).astype(np.float64)

    def healed(mine: BoolArray, by: int) -> Inputs:
        time = seen.inputs.time
        return seen.inputs.but(time=np.where(mine & seen.moved, np.maximum(time - by, 0), time))

    found, explained = _by_link(case, told, over, healed)
    return found + _single_transfers(case, told, over - explained, healed)


def post_faults(case: Case) -> list[Fault]:
    """Ranks that post sends or receives late."""
    seen, work, inputs = case.seen, case.work, case.seen.inputs
    over = (inputs.delay - case.reference.delay).astype(np.float64)

    def posted_at_once(mine: BoolArray, by: int) -> Inputs:
        return inputs.but(delay=np.where(mine & seen.moved, np.maximum(inputs.delay - by, 0), inputs.delay))

    def posted_ahead(mine: BoolArray, by: int) -> Inputs:  # noqa: ARG001 - called as the others are
        return inputs.but(after=np.where(mine & seen.moved, NEVER, inputs.after))

    found, _ = _by_rank(case, work.sender, seen.moved, over, FaultKind.SEND, posted_at_once)
    if not case.posts_ahead:
        return found
    anchor = np.where(inputs.anchor >= 0, inputs.anchor, len(work))
    posted = np.append(seen.end, 0)[anchor] + inputs.after
    late = (posted - seen.start[work.producer] - inputs.ready - inputs.delay).astype(np.float64)
    # Where the step before posted late as well, that is how its ranks wait.
    told = seen.moved & (inputs.after > NEVER) & (case.reference.after == NEVER) & (late > case.floor)
    return found + _by_rank(case, work.receiver, told, late, FaultKind.RECEIVE, posted_ahead)[0]


def gap_faults(case: Case) -> list[Fault]:
    """Ranks that pause before their actions, then single actions that do."""
    seen, work, inputs = case.seen, case.work, case.seen.inputs
    n = len(work)
    over = (inputs.gap - case.reference.gap).astype(np.float64)
    # What waits for a rank that was not recorded may have had to.
    told = seen.known & case.reference.present & work.in_schedule & (seen.graph.previous < n) & (seen.awaits == NOBODY)
    every = np.flatnonzero(told)
    # A pause can hide behind a wait for data; where the lane alone held a row up it is seen whole.
    bound = told & (np.append(seen.there, NEVER)[seen.graph.needs].max(axis=0, initial=NEVER) <= seen.idle_from)
    for rank in np.unique(work.rank[told]).tolist():
        mine = told & (work.rank == rank)
        whole = mine & bound
        if whole.sum() > max(1, mine.sum() // 4):
            told &= ~mine | whole

    def healed(mine: BoolArray, by: int) -> Inputs:
        return inputs.but(gap=np.where(mine, np.maximum(inputs.gap - by, 0), inputs.gap))

    found, explained = _by_rank(case, work.rank, told, over, FaultKind.GAP, healed)
    # What was waited for and what was not have gaps of their own.
    left = (over - explained)[every]
    left -= _usual(work.rank[every] * 2 + bound[every], left)
    return found + singles(case, every, left, np.ones(every.size), FaultKind.DELAYED)


_FEWEST = 3  # values, of which one can be told from the others
_FEW = 5  # values, of which one could be the fault itself
Heal = Callable[[BoolArray, int], Inputs]


def _usual(groups: IntArray, values: FloatArray) -> FloatArray:
    """The median of each value's group, or of all where that has few; shape of `values`."""
    usual = np.full(values.size, np.median(values) if values.size else 0.0)
    for one in np.unique(groups).tolist():
        if (groups == one).sum() >= _FEW:
            usual[groups == one] = np.median(values[groups == one])
    return usual


def _by_rank(
    case: Case, rank: IntArray, told: BoolArray, over: FloatArray, kind: FaultKind, healed: Heal
) -> tuple[list[Fault], FloatArray]:
    """Ranks at fault, and ns of each value that this explains."""
    explained = np.zeros(over.size)
    if not told.any():
        return [], explained
    ranks, of = np.unique(rank[told], return_inverse=True)
    cells = cells_of(of, over[told], ranks.size)
    if kind is FaultKind.RECEIVE:
        # All of these are late, how late differs by what the rank was busy with: that is no noise.
        cells = replace(cells, error=np.zeros(ranks.size))
    sets = [CellSet(f"rank {r}", ranks == r) for r in ranks.tolist()]
    # Only what is late is told of receives: where that is one rank's, the others' are known to be in time.
    if kind is not FaultKind.RECEIVE or ranks.size > 1:
        sets.append(CellSet("all ranks", np.ones(ranks.size, dtype=np.bool_)))
    found = []
    weight = cells.count.astype(np.float64)
    patterns = explain(cells, weight, sets, case.floor)
    # How late receives are posted is told by the middle one.
    for pattern in patterns if kind is FaultKind.RECEIVE else amounts_of(cells, weight, patterns):
        if pattern.amount < 0:
            continue
        mine = np.isin(rank, ranks[pattern.cells])
        by, size = round(pattern.amount), int((over - explained)[told & mine].sum())
        explained[mine] += by
        found.append(Fault(kind, pattern.names, by, int((told & mine).sum()), size, healed(mine, by)))
    return found, explained


def _by_link(case: Case, told: BoolArray, over: FloatArray, healed: Heal) -> tuple[list[Fault], FloatArray]:
    """Links at fault, and ns of each transfer that this explains."""
    work = case.work
    explained = np.zeros(over.size)
    if not told.any():
        return [], explained
    links, of = np.unique(work.link[told], return_inverse=True)
    sender, receiver = links // work.schedule.ranks, links % work.schedule.ranks
    cells = cells_of(of, over[told], links.size)
    found = []
    weight = cells.count.astype(np.float64)
    patterns = explain(cells, weight, _link_sets(sender, receiver), case.floor)
    for pattern in amounts_of(cells, weight, patterns):
        mine = np.isin(work.link, links[pattern.cells])
        by = round(pattern.amount)
        if by < 0:
            continue
        usual = round(float(np.median(case.reference.time[told & mine])))
        size, count = int((over - explained)[told & mine].sum()), int((told & mine).sum())
        explained[mine] += by
        found.append(Fault(FaultKind.LINK, pattern.names, by, count, size, healed(mine, by), typical=usual))
    return found, explained


def _link_sets(sender: IntArray, receiver: IntArray) -> list[CellSet]:
    pairs = list(zip(sender.tolist(), receiver.tolist(), strict=True))
    sets = [CellSet(f"link {a}→{b}", (sender == a) & (receiver == b)) for a, b in pairs]
    for a, b in pairs:
        if a < b and (b, a) in pairs:
            both = ((sender == a) & (receiver == b)) | ((sender == b) & (receiver == a))
            sets.append(CellSet(f"link {a}–{b}, both ways", both))
    for ends, verb in ((sender, "sends"), (receiver, "receives")):
        several = [rank for rank in np.unique(ends).tolist() if (ends == rank).sum() > 1]
        sets += [CellSet(f"all that rank {rank} {verb}", ends == rank) for rank in several]
    every = CellSet("all links", np.ones(sender.size, dtype=np.bool_))
    # Of two ranks' links there are no others.
    return [every, *sets] if sender.size <= 2 else [*sets, every]


def _single_transfers(case: Case, told: BoolArray, over: FloatArray, healed: Heal) -> list[Fault]:
    """Single transfers that took far longer than the others of their link, or than all others where it has few.

    Args:
        case: Where.
        told: Transfers of which it is known how long they took; shape (k,).
        over: ns over the ideal that nothing else explains; shape (k,).
        healed: Makes single ones shorter.
    """
    work = case.work
    which = np.flatnonzero(told)
    if which.size < _FEWEST:
        return []
    left = over.copy()
    left[told] -= _usual(work.link[told], left[told])
    limit = max(OUTLIER * robust_deviation(left[which]), 5.0 * case.floor, 1.0)
    out = which[left[which] > limit]
    if out.size > max(1 if which.size < 2 * _FEW else 3, which.size // 25):
        return []
    found = []
    for t in out[np.argsort(-left[out], kind="stable")][:2].tolist():
        mine = np.zeros(over.size, dtype=np.bool_)
        mine[t] = True
        by = round(float(left[t]))
        names = [f"transfer {code_text(int(work.receive[t]))}"]
        if (work.link[told] == work.link[t]).sum() == 1:
            names.append(f"link {work.sender[t]}→{work.receiver[t]}")
        found.append(Fault(FaultKind.LINK, tuple(names), by, 1, by, healed(mine, by)))
    return found
