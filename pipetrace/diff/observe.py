"""A timeline taken apart into what a replay is fed, so that replaying it gives the timeline back.

Durations, posts and gaps are read off. How long a transfer took is seen only where its receiver waited for it: a
recorded receive ends when the wait for it ended, however early the data came. Where the receiver came later than the
link usually needs and waited no longer than for data that is there, or hardly in proportion to how long ago the
transfer began, the link's usual time stands in: that a receiver was busy until just before shows no slow transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipetrace.action import NO_ACTION, BoolArray, IntArray
from pipetrace.diff.replay import NEVER, Graph, Inputs, arrivals
from pipetrace.diff.work import Work, does_work
from pipetrace.links import NO_ROW
from pipetrace.metrics.chunks import halves
from pipetrace.metrics.tiles import Lookup
from pipetrace.timeline import UNKNOWN, Timeline

NOBODY = -1
"""No rank."""
_HARDLY = 0.1  # of the time since a transfer began: a wait this short may be the host's
_TRIVIAL = 3  # times as long as waits for data that is there usually are: no longer such a wait


@dataclass(frozen=True, eq=False)
class Observed:
    """One timeline as a replay sees it: n rows, k transfers, ns from the first F, B, I or W.

    Args:
        graph: The rows in the order in which they ran; a missing one behind what comes before it in the schedule.
        start, end: Of each row; a missing one has both where its rank's row before ended; shape (n,).
        known: Rows that are in the timeline; shape (n,).
        moved: Transfers whose two rows are; shape (k,).
        inputs: What replays it. The gap of a row that needs something of a row that is missing is what passed since
            its lane was free.
        there: When each transfer arrived; long ago where it was not `moved`; shape (k,).
        idle_from: When each row's lane was free; shape (n,).
        early: ns by which a row starts before what it needs is there, which only clocks that differ can show;
            shape (n,).
        tracked: Transfers whose receive is in the timeline; shape (k,).
        seen: Transfers whose time was seen, not taken from the others of their link; shape (k,).
        recorded: Ranks that have rows.
        awaits: A rank that was not recorded and makes what a row needs, `NOBODY` where there is none; shape (n,).
        makespan: First to last F, B, I or W.
        exact: Whether the timeline was simulated: then a receive ends with its arrival.
    """

    graph: Graph
    start: IntArray
    end: IntArray
    known: BoolArray
    moved: BoolArray
    inputs: Inputs
    there: IntArray
    idle_from: IntArray
    early: IntArray
    tracked: BoolArray
    seen: BoolArray
    recorded: tuple[int, ...]
    awaits: IntArray
    makespan: int
    exact: bool


def observe(work: Work, timeline: Timeline, base: Inputs) -> Observed:
    """Takes a timeline apart.

    Args:
        work: Its rows.
        timeline: From its first action on; replica 0 is taken.
        base: The ideal, which says how much of a pair's duration each half takes where only one of the two steps runs
            them as a pair, and how long transfers take that were not recorded.
    """
    exact = timeline.epoch == 0
    of = timeline.where(timeline.replica == 0)
    works = does_work(of)
    tiles, others = of.where(works), of.where(~works)
    start, end, duration, known = _rows(work, tiles, base)
    graph, start, end = _in_order(work, start, end, known)
    n, k = start.size, work.producer.size
    moved = known[work.producer] & known[work.consumer]
    ends = np.append(end, 0)
    idle_from = ends[graph.previous]

    at = Lookup(others.code, np.arange(len(others), dtype=np.int64))
    sent, received = at.find(work.send), at.find(work.receive)
    sent_at, posted, arrived, waited = (
        _column(getattr(others, name), rows)
        for name, rows in (("posted", sent), ("posted", received), ("end", received), ("waited", received))
    )
    tracked = (arrived != UNKNOWN) & moved
    begins, lasts = start[work.producer], duration[work.producer]
    paired = work.partner[work.producer] != NO_ACTION
    # When a pair let go of an output is told by its send; without one, by the ideal and by who used it.
    used = np.where(moved, np.maximum(start[work.consumer] - begins, 0), lasts)
    made = np.where(paired, np.minimum(np.minimum(base.ready, lasts), used), lasts)
    ready = np.where(sent_at != UNKNOWN, np.clip(sent_at - begins, 0, lasts), made)
    delay = np.where(sent_at != UNKNOWN, np.maximum(sent_at - begins - ready, 0), 0)
    anchor, after = _anchors(work, graph, ends, np.where(moved, posted, UNKNOWN))
    inputs = Inputs(duration, np.zeros(n, dtype=np.int64), ready, delay, anchor, after, np.zeros(k, np.int64), known)
    begun = arrivals(inputs, graph, start, end)
    lasted = np.maximum(arrived - begun, 0)
    if exact:
        time, seen = lasted, tracked.copy()
    else:
        time, seen = _times(work, begun, lasted, waited, arrived, tracked)
    untracked = np.clip(start[work.consumer] - begun, 0, np.maximum(base.time, 0))
    time = np.where(moved, np.where(tracked, time, untracked), NEVER)
    inputs = inputs.but(time=time)
    there = begun + time

    since = np.maximum(idle_from, graph.needed(there, end))
    gap = np.where(known, np.maximum(start - since, 0), 0)
    early = np.where(known, np.maximum(since - start, 0), 0)
    recorded = tuple(np.unique(work.rank[known]).tolist())
    awaits = np.full(n, NOBODY, dtype=np.int64)
    unrecorded = known[work.consumer] & ~np.isin(work.rank[work.producer], recorded)
    awaits[work.consumer[unrecorded]] = work.rank[work.producer[unrecorded]]
    return Observed(
        graph,
        start,
        end,
        known,
        moved,
        inputs.but(gap=gap),
        there,
        idle_from,
        early,
        tracked,
        seen,
        recorded,
        awaits,
        tiles.makespan if len(tiles) else 0,
        exact,
    )


def _rows(work: Work, tiles: Timeline, base: Inputs) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Start, end and duration of every row, and which are there."""
    at = Lookup(*halves(tiles))
    paired = work.partner != NO_ACTION
    one = at.find(work.code)
    two = np.where(paired, at.find(work.partner), one)
    known = (one >= 0) & (two >= 0)
    if not len(tiles):
        zero = np.zeros(len(work), dtype=np.int64)
        return zero, zero, zero.copy(), known
    start = np.where(known, np.minimum(tiles.start[one], tiles.start[two]), 0)
    end = np.where(known, np.maximum(tiles.end[one], tiles.end[two]), 0)
    # The two halves of a pair that ran apart: what ran between them is not theirs.
    lasts = tiles.end - tiles.start
    duration = np.where(known, np.where(one == two, lasts[one], lasts[one] + lasts[two]), 0)
    _share_tiles(work, tiles, base, one, (start, end, duration))
    return start, end, duration, known


def _share_tiles(
    work: Work, tiles: Timeline, base: Inputs, one: IntArray, columns: tuple[IntArray, IntArray, IntArray]
) -> None:
    """Divides tiles that hold two rows, an overlapped pair where the schedule has its halves apart."""
    start, end, duration = columns
    shared = (work.partner == NO_ACTION) & (one >= 0)
    shared[shared] = tiles.partner[one[shared]] != NO_ACTION
    rows = np.flatnonzero(shared)
    if not rows.size:
        return
    rows = rows[np.argsort(one[rows], kind="stable")]
    twice = np.flatnonzero(one[rows[1:]] == one[rows[:-1]])
    first, second = rows[twice], rows[twice + 1]
    wanted = base.duration[first] + base.duration[second]
    share = np.where(wanted > 0, base.duration[first] / np.maximum(wanted, 1), 0.5)
    until = start[first] + np.floor(duration[first] * share).astype(np.int64)
    end[first], start[second] = until, until
    duration[first], duration[second] = end[first] - start[first], end[second] - start[second]


def _in_order(work: Work, start: IntArray, end: IntArray, known: BoolArray) -> tuple[Graph, IntArray, IntArray]:
    """The graph in the order of time, with a place for what is missing."""
    graph = work.graph
    order = np.lexsort((graph.position, graph.lane))
    lane, there = graph.lane[order], known[order]
    last = np.maximum.accumulate(np.where(there, np.arange(order.size), -1))
    same = (last >= 0) & (lane[np.maximum(last, 0)] == lane)
    before = order[np.maximum(last, 0)]
    begins, ends = start.copy(), end.copy()
    absent = ~there
    begins[order[absent]] = np.where(same, start[before], 0)[absent]
    ends[order[absent]] = np.where(same, end[before], 0)[absent]
    measured = np.lexsort((graph.position, ends, begins, graph.lane))
    position = np.empty(order.size, dtype=np.int64)
    position[measured] = np.arange(order.size)
    return work.ordered(position), np.where(known, start, ends), ends


def _column(column: IntArray, rows: IntArray) -> IntArray:
    """Values at some rows, `UNKNOWN` where there is none."""
    padded = np.append(column, UNKNOWN)
    return padded[rows]


def _anchors(work: Work, graph: Graph, ends: IntArray, posted: IntArray) -> tuple[IntArray, IntArray]:
    """Behind which row of its rank each receive was posted, and how long after its end."""
    anchor, after = np.full(posted.size, NO_ROW, dtype=np.int64), np.full(posted.size, NEVER, dtype=np.int64)
    late = (posted != UNKNOWN) & (posted > 0)
    order = np.lexsort((graph.position, graph.lane))
    lanes = work.compute_lane
    begin, stop = (np.searchsorted(graph.lane[order], lanes, side=side) for side in ("left", "right"))
    for rank in np.unique(work.receiver[late]).tolist():
        mine = order[begin[rank] : stop[rank]]
        which = np.flatnonzero(late & (work.receiver == rank))
        reached = np.maximum.accumulate(ends[mine])
        behind = np.searchsorted(reached, posted[which], side="right") - 1
        anchor[which] = np.where(behind >= 0, mine[np.maximum(behind, 0)], NO_ROW)
        after[which] = posted[which] - np.where(behind >= 0, reached[np.maximum(behind, 0)], 0)
    return anchor, after


def _times(
    work: Work, begun: IntArray, lasted: IntArray, waited: IntArray, arrived: IntArray, tracked: BoolArray
) -> tuple[IntArray, BoolArray]:
    """How long each transfer took, and for which that was seen; see the module."""
    waits = tracked & (waited != UNKNOWN)
    whole = waits & (waited <= begun)
    usual = np.zeros(lasted.size, dtype=np.int64)
    for link in np.unique(work.link[tracked]).tolist():
        mine = tracked & (work.link == link)
        some = mine & whole
        # What was not awaited from the start took that long at most; and a single one may be no usual one.
        told = [some, mine, whole] if some.sum() == 1 else [some, mine]
        if some.any():
            usual[mine] = min(_middle(lasted[of]) for of in told)
        else:
            # Nobody waited for this link from the start: all that it shows are bounds.
            least = int(lasted[mine].min())
            usual[mine] = min(least, _middle(lasted[whole])) if whole.any() else least
    in_time = waits & (begun + 2 * usual <= waited)
    # Of one alone nobody knows whether it is such a wait.
    trivial = _TRIVIAL * _middle(arrived[in_time] - waited[in_time]) if in_time.sum() > 1 else 0
    enough = np.maximum(trivial, _HARDLY * lasted)
    seen = waits & ((whole.any() & (waited < begun + usual)) | (arrived - waited > enough))
    return np.where(seen, lasted, np.minimum(lasted, usual)), seen


def _middle(values: npt.NDArray[np.int64]) -> int:
    """The median, the lower of two middle ones: of two values the larger may be the fault itself."""
    return int(np.sort(values)[(values.size - 1) // 2])
