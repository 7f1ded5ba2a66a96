"""What every action of a timeline waited for: what came before it on its rank, or what it needed from elsewhere.

The critical path follows one such link after the other; idle time is explained by them. An ideal timeline answers
exactly. In a measured one the predecessor that finished last counts, and a wait for data that must long have been there
is no wait: a recorded receive ends when the wait for it ended, however early the data came. How early is judged by the
fastest transfer between the same two ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from pipetrace.action import COMPUTE_KINDS, NO_ACTION, BoolArray, IntArray, Kind, whole_stage, with_kind
from pipetrace.costs import Costs
from pipetrace.lanes import fenced_pairs
from pipetrace.links import NO_ROW
from pipetrace.metrics.chunks import halves
from pipetrace.metrics.tiles import Lookup, backward_half, is_kind
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Lane, Timeline

NO_TILE = -1
_NEVER = np.iinfo(np.int64).min // 4


class Need(IntEnum):
    """What an action needs from another one."""

    INPUT = 0
    """The output of the stage before."""
    GRADIENT = 1
    """The input gradient of the stage after."""
    LOCAL = 2
    """Its own stage's forward, or for a W its I."""


class Reason(IntEnum):
    """Why an action did not start earlier. The first three are those of `Need`."""

    INPUT = 0
    """It waited for the output of the stage before."""
    GRADIENT = 1
    """It waited for the input gradient of the stage after."""
    LOCAL = 2
    """It waited for its own stage's action on another lane."""
    RANK = 3
    """Its rank was busy with the action before it."""
    POSTED = 4
    """Its rank posted the receive only after another action."""
    FIRST = 5
    """Nothing is known to stand before it."""


@dataclass(frozen=True, eq=False)
class Bindings:
    """What each of n tiles of one replica waited for; times in ns, rows are those of `tiles`, or `NO_TILE`.

    Args:
        tiles: F, B, I and W, on the compute and all-to-all lanes.
        previous: The tile of the same rank and lane that ended last of those before it; shape (n,).
        came_after: The same; but of what comes first on a lane behind a fence, the last before the fence of both lanes.
        producer: The tile that made what arrived last of what it needs; shape (n,).
        half: Code of the action in that tile that made it; shape (n,).
        need: Which `Need` that was; shape (n,).
        ready: When the producer had it, but not after the tile's own start; shape (n,).
        there: When it had arrived, but not after the tile's own start; shape (n,).
        reason: Why it did not start earlier, a `Reason`; shape (n,).
        bound: What it waited for in the end: `previous`, `producer`, or what the receiving rank was busy with until it
            posted the receive; shape (n,).
        left: When that was done, but not after the tile's own start; shape (n,).
        sent: When what it waited for was under way: the later of made and asked for; shape (n,). Equal to `left`
            where no transfer was waited for.
    """

    tiles: Timeline
    previous: IntArray
    came_after: IntArray
    producer: IntArray
    half: IntArray
    need: IntArray
    ready: IntArray
    there: IntArray
    reason: IntArray
    bound: IntArray
    left: IntArray
    sent: IntArray


def bindings(schedule: Schedule, timeline: Timeline, costs: Costs | None = None, replica: int = 0) -> Bindings:
    """What every action of one replica waited for.

    Args:
        schedule: What the timeline is of; says which action needs which. Actions that were not measured are skipped.
        timeline: Ideal or measured.
        costs: What an ideal was simulated with. Only they tell when an overlapped pair released its outputs, where
            transfers are free; without them a pair counts as having released what was used before its end.
        replica: Which replica.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    of_replica = timeline.where(timeline.replica == replica)
    computes = is_kind(of_replica.code, *COMPUTE_KINDS) & (of_replica.lane <= Lane.ALL_TO_ALL)
    tiles = of_replica.where(computes)
    n, start, end = len(tiles), tiles.start, tiles.end
    previous = _previous(tiles)
    came_after = _behind_fences(schedule, tiles, previous) if schedule.has_parts else previous
    edges = _Edges(schedule, tiles, of_replica.where(~computes), costs, exact=timeline.epoch == 0)

    producer, half, need, received = (np.full(n, fill, dtype=np.int64) for fill in (NO_TILE, NO_ACTION, 0, NO_TILE))
    ready, there, best = (np.full(n, _NEVER, dtype=np.int64) for _ in range(3))
    zero = tiles.span[0]
    for of in (Need.INPUT, Need.GRADIENT, Need.LOCAL):
        into, source, code, made, arrived, receive, guessed = edges.of(of)
        # The last to arrive; of two at once the one that is known for sure, then what is nearest at hand.
        order = (arrived - zero) * 2 + ~guessed
        better = order >= best[into]
        into = into[better]
        best[into], need[into] = order[better], of
        for column, value in ((producer, source), (half, code), (ready, made), (there, arrived), (received, receive)):
            column[into] = value[better]

    own_end = np.where(came_after == NO_TILE, _NEVER, np.minimum(end[came_after] if n else came_after, start))
    by_rank = (came_after != NO_TILE) & (own_end >= edges.surely_there(producer, ready, there, received))
    if schedule.has_parts:
        # Behind a fence it waited for an all-to-all as if it took what that makes.
        behind = by_rank & (came_after != previous) & (tiles.lane == Lane.COMPUTE)
        behind &= tiles.lane[came_after] == Lane.ALL_TO_ALL
        producer[behind], half[behind] = came_after[behind], tiles.code[came_after[behind]]
        need[behind], received[behind] = Need.LOCAL, NO_TILE
        ready[behind] = there[behind] = own_end[behind]
    # Asked for only when made: what the receiving rank did until then is what held it up.
    posted = edges.transfers.posted[received] if len(edges.transfers) else np.full(n, UNKNOWN, dtype=np.int64)
    late = (received != NO_TILE) & ~by_rank & (posted != UNKNOWN) & (posted > ready) & (posted <= there)

    reason = np.where(producer == NO_TILE, int(Reason.FIRST), need)
    reason[late], reason[by_rank] = Reason.POSTED, Reason.RANK
    bound = np.where(by_rank, came_after, producer)
    bound[late] = [_ended_by(tiles, row, int(posted[row]), previous) for row in np.flatnonzero(late).tolist()]
    reason[bound == NO_TILE] = Reason.FIRST
    sent = np.where(by_rank, own_end, np.where(late, posted, ready))
    left = np.where(late & (bound != NO_TILE), np.minimum(end[bound] if n else bound, sent), sent)
    return Bindings(tiles, previous, came_after, producer, half, need, ready, there, reason, bound, left, sent)


def _previous(tiles: Timeline) -> IntArray:
    """For each tile the one that ended last of those before it on its rank and lane."""
    previous = np.full(len(tiles), NO_TILE, dtype=np.int64)
    group = tiles.rank * 2 + tiles.lane
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(tiles)]
    for begin, stop in pairwise(edges):
        end = tiles.end[begin:stop]
        leads = np.where(end >= np.maximum.accumulate(end), np.arange(stop - begin), 0) if stop > begin else end
        previous[begin + 1 : stop] = begin + np.maximum.accumulate(leads)[:-1]
    return previous


def _behind_fences(schedule: Schedule, tiles: Timeline, previous: IntArray) -> IntArray:
    """`previous`; but what comes first on a lane behind a fence came after the last before it on either lane."""
    row = Lookup(schedule.code, np.arange(len(schedule), dtype=np.int64)).find(tiles.code)
    section = np.cumsum(schedule.fences | np.isin(np.arange(len(schedule)), schedule.first))
    section = np.where(row == NO_TILE, 0, section[row])
    known = section > 0
    first = known & (previous != NO_TILE)
    first &= np.where(previous == NO_TILE, 0, section[previous]) < section
    # The last to end up to each section; sections rise with the rank, so a rank's own begin behind the ranks before.
    in_order = np.lexsort((tiles.end, section))
    last = np.full(int(section.max(initial=0)) + 2, NO_TILE, dtype=np.int64)
    last[section[in_order]] = in_order
    for at in range(1, last.size):
        before = last[at - 1]
        if before == NO_TILE or (last[at] != NO_TILE and tiles.rank[last[at]] != tiles.rank[before]):
            continue
        if last[at] == NO_TILE or tiles.end[before] > tiles.end[last[at]]:
            last[at] = before
    held = np.flatnonzero(first)
    by = last[section[held] - 1]
    held, by = held[by != NO_TILE], by[by != NO_TILE]
    same = (tiles.rank[held] == tiles.rank[by]) & (tiles.end[by] > tiles.end[previous[held]])
    same &= tiles.end[by] <= tiles.start[held]
    came_after = previous.copy()
    came_after[held[same]] = by[same]
    return came_after


def _ended_by(tiles: Timeline, row: int, time: int, previous: IntArray) -> int:
    """The last tile before `row` on its rank that had ended at `time`."""
    while True:
        row = int(previous[row])
        if row == NO_TILE or tiles.end[row] <= time:
            return row


class _Edges:
    """Who needs what from whom, as tiles, with when it was made and when it arrived."""

    def __init__(
        self, schedule: Schedule, tiles: Timeline, others: Timeline, costs: Costs | None, *, exact: bool
    ) -> None:
        self._schedule, self._tiles, self._exact = schedule, tiles, exact
        self.transfers = others
        self._compute, self._moved = Lookup(*halves(tiles)), Lookup(others.code, np.arange(len(others), dtype=np.int64))
        self._released = costs.ready(schedule, costs.durations(schedule)) if costs is not None else None

    def of(self, need: Need) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, BoolArray]:
        """Of every edge of one kind: consumer, producer, its half's code, when made, when there, receive, guessed."""
        links, start, end = self._schedule.links, self._tiles.start, self._tiles.end
        column = (links.inputs, links.gradients, links.local)[need]
        to = np.flatnonzero(column != NO_ROW)
        of = column[to]
        back = backward_half(links.code, links.partner)
        if need is Need.INPUT:
            wanted, made_by = links.code[to], links.code[of]
        elif need is Need.GRADIENT:
            wanted, made_by = back[to], back[of]
        else:
            wanted, made_by = back[to], np.where(is_kind(links.code[to], Kind.W), back[of], links.code[of])
        takes = wanted
        if need is not Need.LOCAL and self._schedule.has_parts:
            # Behind a fence both first parts of a pair wait for the inputs of both.
            for one, other in ((0, 1), (1, 0)):
                row = fenced_pairs(self._schedule) + one
                row = row[column[row] != NO_ROW]
                takes, made_by, of = (
                    np.concatenate(both)
                    for both in ((takes, back[row]), (made_by, links.code[column[row]]), (of, column[row]))
                )
                wanted = np.concatenate([wanted, back[row + other - one]])
        consumer, producer = self._compute.find(wanted), self._compute.find(made_by)
        both = (consumer != NO_TILE) & (producer != NO_TILE) & (consumer != producer)
        # Clocks that differ may show a producer that starts after its consumer: it tells nothing.
        both[both] = start[producer[both]] <= start[consumer[both]]
        consumer, producer, takes, made_by, of = (a[both] for a in (consumer, producer, takes, made_by, of))

        ready, guessed = end[producer], np.zeros(producer.size, dtype=np.bool_)
        crosses = self._tiles.rank[producer] != self._tiles.rank[consumer]
        sends, receives = (Kind.SEND_B, Kind.RECV_B) if need is Need.GRADIENT else (Kind.SEND_F, Kind.RECV_F)
        receive = np.where(crosses, self._moved.find(with_kind(whole_stage(takes), receives)), NO_TILE)
        paired = self._tiles.partner[producer] != NO_ACTION
        if paired.any() and need is not Need.LOCAL:
            send = np.where(crosses, self._moved.find(with_kind(whole_stage(made_by), sends)), NO_TILE)
            posted = self.transfers.posted[send] if len(self.transfers) else np.full(send.size, UNKNOWN)
            known = paired & (send != NO_TILE) & (posted != UNKNOWN)
            ready = np.where(known, np.clip(posted, start[producer], ready), ready)
            if self._released is not None:
                known, after = paired & crosses, self._released[int(need)]
                ready = np.where(known, start[producer] + after[of], ready)
            guessed = paired & ~known & (ready > start[consumer])
        there = np.where(receive != NO_TILE, self.transfers.end[receive], ready) if len(self.transfers) else ready
        latest = start[consumer]
        ready, there = np.minimum(ready, latest), np.minimum(np.maximum(there, ready), latest)
        return consumer, producer, made_by, ready, there, receive, guessed

    def surely_there(self, producer: IntArray, ready: IntArray, there: IntArray, received: IntArray) -> IntArray:
        """When what each tile needs was there; had it been as fast as the fastest, where it was measured."""
        moved = np.flatnonzero(received != NO_TILE)
        if self._exact or not moved.size:
            return there
        begun, ended = self.transfers.start[received[moved]], self.transfers.end[received[moved]]
        rank = self._tiles.rank
        way = rank[producer[moved]] * self._tiles.ranks + rank[moved]
        _, index = np.unique(way, return_inverse=True)
        fastest = np.full(int(index.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(fastest, index, np.maximum(ended - begun, 0))
        surely = there.copy()
        surely[moved] = np.minimum(there[moved], np.maximum(ready[moved], begun) + fastest[index])
        return surely
