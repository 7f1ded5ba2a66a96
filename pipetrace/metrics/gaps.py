"""Idle time and what it waited for, gap by gap and as sums by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from pipetrace.action import NO_ACTION, Action, BoolArray, IntArray, Pair
from pipetrace.costs import Costs
from pipetrace.metrics.bindings import NO_TILE, Bindings, Need, Reason, bindings
from pipetrace.metrics.critical_path import awaited, because
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline

_MOST_LINKS = 4  # of a chain of reasons; more are not read


class Cause(StrEnum):
    """Why a rank stands idle."""

    NOTHING_YET = "nothing yet"
    """Before its first action."""
    INPUT = "input"
    """The stage before has not made the output that the next forward needs."""
    GRADIENT = "gradient"
    """The stage after has not made the gradient that the next backward needs."""
    LOCAL = "local"
    """What the rank itself makes on another lane is not there."""
    TRANSFER = "transfer"
    """It was made, but has not arrived."""
    HOST = "host"
    """All that is known to be needed was there: the host, the launch, or what the timeline does not hold."""
    NOTHING_LEFT = "nothing left"
    """After its last action."""


_CAUSES = tuple(Cause)
_NUMBER = {cause: number for number, cause in enumerate(_CAUSES)}
_OF_NEED = np.array([_NUMBER[Cause[need.name]] for need in Need])


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which a rank's compute lane stands idle for one cause.

    Where a rank waits first for something to be made, then for its transfer, that is two gaps.

    Args:
        rank: Which rank.
        start, end: ns on the timeline's clock.
        cause: Why.
    """

    rank: int
    start: int
    end: int
    cause: Cause
    _row: int = field(repr=False)
    _of: Bindings = field(repr=False)

    @property
    def duration(self) -> int:
        """ns."""
        return self.end - self.start

    @property
    def action_after(self) -> Action | Pair | None:
        """What ends the idle time; None where nothing comes."""
        return _item(self._of.tiles, self._row) if self._row != NO_TILE else None

    @property
    def action_before(self) -> Action | Pair | None:
        """What ended before it; None where nothing did."""
        if self._row == NO_TILE:
            mine = np.flatnonzero((self._of.tiles.rank == self.rank) & self._of.tiles.is_compute)
            return _item(self._of.tiles, int(mine[self._of.tiles.end[mine].argmax()])) if mine.size else None
        before = int(self._of.previous[self._row])
        return None if before == NO_TILE else _item(self._of.tiles, before)

    @property
    def awaits(self) -> Action | None:
        """The action that makes what is waited for; None where nothing is known to be."""
        if self._row == NO_TILE or self.cause is Cause.HOST or self._of.producer[self._row] == NO_TILE:
            return None
        return Action.from_code(int(self._of.half[self._row]))

    def __str__(self) -> str:
        """The cause in words: what is waited for, what that waited for, and so on, four links at most."""
        rank = f"rank {self.rank}"
        if self.cause is Cause.NOTHING_LEFT:
            return f"{rank} has nothing left to do"
        if self.cause is Cause.HOST:
            return f"{rank} is late with {self.action_after}: what it needs is there"
        if self.cause is Cause.TRANSFER:
            return f"{rank} waits for the transfer of {awaited(self._of, self._row)}"
        if self.awaits is None:
            return f"{rank} has nothing yet to do"
        yet = "has nothing yet to do: it " if self.cause is Cause.NOTHING_YET else ""
        return f"{rank} {yet}waits for {awaited(self._of, self._row)}{self._chain()}"

    def _chain(self) -> str:
        """What held up the awaited action, as far back as it matters: to what already ran when the gap began."""
        of, row = self._of, int(self._of.producer[self._row])
        parts: list[str] = []
        while of.tiles.start[row] > self.start:
            reason = Reason(int(of.reason[row]))
            if reason is Reason.FIRST:
                break
            if len(parts) == _MOST_LINKS:
                parts.append(", …")
                break
            parts.append(f", which {because(of, row, reason)}")
            row = int(of.bound[row])
        return "".join(parts)


def gaps(schedule: Schedule, timeline: Timeline, *, costs: Costs | None = None, replica: int = 0) -> list[Gap]:
    """All idle time of one replica's ranks, rank by rank in the order of time, each stretch with its cause.

    Σ of a rank's gaps is its global idle, to the ns.

    Args:
        schedule: What the timeline is of.
        timeline: Ideal or measured.
        costs: What an ideal was simulated with; see `pipetrace.metrics.bindings.bindings`.
        replica: Which replica.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    return gaps_of(bindings(schedule, timeline, costs, replica))


def gaps_of(of: Bindings) -> list[Gap]:
    """The gaps of a timeline whose bindings are known; see `gaps`."""
    columns = [column.tolist() for column in pieces_of(of)]
    return [
        Gap(rank, start, end, _CAUSES[cause], row, of) for rank, start, end, cause, row in zip(*columns, strict=True)
    ]


def idle_by_cause(
    schedule: Schedule, timeline: Timeline, *, costs: Costs | None = None, replica: int = 0
) -> Mapping[Cause, tuple[int, ...]]:
    """Idle time by cause, in ns; tuples have one entry a rank. The causes of a rank sum to its global idle.

    The arguments and errors are those of `gaps`; this is faster where there are many.
    """
    return sums_of(bindings(schedule, timeline, costs, replica))


def sums_of(of: Bindings) -> Mapping[Cause, tuple[int, ...]]:
    """Idle time by cause of a timeline whose bindings are known; see `idle_by_cause`."""
    rank, start, end, cause, _ = pieces_of(of)
    table = np.zeros((len(_CAUSES), of.tiles.ranks), dtype=np.int64)
    np.add.at(table, (cause, rank), end - start)
    return {of_cause: tuple(table[i].tolist()) for i, of_cause in enumerate(_CAUSES)}


def pieces_of(of: Bindings) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Rank, start, end, place of the cause in `Cause`, and row of the action after, of every gap, by rank and time.

    The last is `NO_TILE` where nothing comes.
    """
    tiles = of.tiles
    begin, finish = tiles.span
    compute = tiles.lane == Lane.COMPUTE
    row = np.flatnonzero(compute)
    before = of.previous[row]
    idle_from = np.where(before == NO_TILE, begin, tiles.end[before] if row.size else begin)
    until = tiles.start[row]
    idles = until > idle_from
    row, before, idle_from, until = row[idles], before[idles], idle_from[idles], until[idles]
    first = before == NO_TILE
    waits = np.where(first, _NUMBER[Cause.NOTHING_YET], _OF_NEED[of.need[row]])
    early = _until_all_to_alls_began(of, row, idle_from, until, first) if (tiles.lane == Lane.ALL_TO_ALL).any() else []
    if early:
        idle_from = np.maximum(idle_from, np.max([piece[2] for piece in early], axis=0))
        of_own = ~first & _is_all_to_all_of_rank(tiles, of.producer[row], row)
        waits = np.where(of_own, _NUMBER[Cause.LOCAL], waits)
    made = np.clip(of.ready[row], idle_from, until)
    there = np.clip(of.there[row], made, until)
    made = np.where(first, until, made)
    there = np.where(first, until, there)

    last = np.full(tiles.ranks, begin, dtype=np.int64)
    np.maximum.at(last, tiles.rank[compute], tiles.end[compute])
    ranks = np.arange(tiles.ranks, dtype=np.int64)
    columns = [
        *early,
        (tiles.rank[row], idle_from, made, waits, row),
        (tiles.rank[row], made, there, np.full(row.size, _NUMBER[Cause.TRANSFER]), row),
        (tiles.rank[row], there, until, np.full(row.size, _NUMBER[Cause.HOST]), row),
        (ranks, last, *(np.full(ranks.size, of_all) for of_all in (finish, _NUMBER[Cause.NOTHING_LEFT], NO_TILE))),
    ]
    rank, start, end, cause, after = (np.concatenate(column).astype(np.int64) for column in zip(*columns, strict=True))
    some = end > start
    rank, start, end, cause, after = (column[some] for column in (rank, start, end, cause, after))
    order = np.lexsort((start, rank))
    return rank[order], start[order], end[order], cause[order], after[order]


def _is_all_to_all_of_rank(tiles: Timeline, maker: IntArray, row: IntArray) -> BoolArray:
    """Which of some tiles, or `NO_TILE`, are all-to-alls of the same rank as those in `row`; shape of `row`."""
    travels = (maker != NO_TILE) & (tiles.lane[maker] == Lane.ALL_TO_ALL)
    which: BoolArray = travels & (tiles.rank[maker] == tiles.rank[row])
    return which


def _until_all_to_alls_began(
    of: Bindings, row: IntArray, idle_from: IntArray, until: IntArray, first: BoolArray
) -> list[tuple[IntArray, IntArray, IntArray, IntArray, IntArray]]:
    """The first pieces of idle time that ends with what an all-to-all of the same rank makes, or behind it.

    What that all-to-all itself waits for is made, then sent, by another rank; the row behind such a piece is that of
    the all-to-all. What is left of the idle time is the all-to-all.
    """
    tiles, rank, maker = of.tiles, of.tiles.rank[row], of.producer[row]
    waits = ~first & _is_all_to_all_of_rank(tiles, maker, row) & (of.producer[maker] != NO_TILE)
    begun = np.where(waits, np.clip(tiles.start[maker], idle_from, until), idle_from)
    made = np.where(waits, np.clip(of.ready[maker], idle_from, begun), idle_from)
    there = np.where(waits, np.clip(of.there[maker], made, begun), made)
    return [
        (rank, idle_from, made, _OF_NEED[of.need[maker]], maker),
        (rank, made, there, np.full(row.size, _NUMBER[Cause.TRANSFER]), maker),
    ]


def _item(tiles: Timeline, row: int) -> Action | Pair:
    action, partner = Action.from_code(int(tiles.code[row])), int(tiles.partner[row])
    return action if partner == NO_ACTION else Pair(action, Action.from_code(partner))
