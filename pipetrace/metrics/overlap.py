"""All-to-alls and the compute they hide behind: how much of their time is hidden, behind what, and how much exposed.

An all-to-all is hidden while its own rank computes, whatever that computes, and exposed while the compute lane stands
idle. This is what timelines show, ideal or measured alike: nothing here knows costs or orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from pipetrace.action import (
    COMPUTE_KINDS,
    NO_ACTION,
    Action,
    IntArray,
    Kind,
    Pair,
    Part,
    code_kind,
    code_layer,
    code_part,
    code_stage,
    whole_stage,
    with_kind,
)
from pipetrace.metrics.tiles import by_rank, is_kind
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline

_NOTHING_TO_SPEAK_OF = 0.01  # of a pair's all-to-all time: exposed by no more than that, it counts as hidden

What = tuple[Kind, Part | None]
"""A kind of work: a kind, and the part of a layer where there is one."""


class Limit(StrEnum):
    """What decides how long a pair takes."""

    COMPUTE = "compute"
    """All-to-alls are hidden: the compute lane is full."""
    COMMUNICATION = "communication"
    """The all-to-all lane has more to do than the compute lane: no order hides it."""
    ORDER = "order"
    """The compute lane has as much to do or more, but not where the all-to-alls run: they do not match."""


@dataclass(frozen=True, eq=False)
class AllToAlls:
    """The all-to-alls of one replica; k of them, and n pieces of compute that hid some.

    Args:
        tiles: On the all-to-all lanes.
        compute: F, B, I and W on the compute lanes.
        hidden: ns of each all-to-all under compute of its rank, what overlaps counted once; shape (k,).
        piece: Row in `tiles` that a piece of compute hid; shape (n,).
        behind: Row in `compute` of that; shape (n,).
        since: From when, ns; shape (n,).
        time: For how many ns; shape (n,).
    """

    tiles: Timeline
    compute: Timeline
    hidden: IntArray
    piece: IntArray
    behind: IntArray
    since: IntArray
    time: IntArray

    @cached_property
    def duration(self) -> IntArray:
        """ns of each; shape (k,)."""
        return self.tiles.end - self.tiles.start

    @cached_property
    def exposed(self) -> IntArray:
        """ns of each without compute of its rank; shape (k,)."""
        return self.duration - self.hidden

    def exposed_spans(self) -> tuple[IntArray, IntArray, IntArray]:
        """Row in `tiles`, start and end of every stretch in which an all-to-all is exposed; ns."""
        rows = np.arange(len(self.tiles), dtype=np.int64)
        # The gaps between its pieces of compute, which come in the order of time, and before and behind them.
        row = np.concatenate([rows, self.piece])
        start = np.concatenate([self.tiles.start, self.since + self.time])
        end = np.concatenate([self.since, self.tiles.end])
        order, closing = np.lexsort((start, row)), np.lexsort((end, np.concatenate([self.piece, rows])))
        row, start, end = row[order], start[order], end[closing]
        some = end > start
        return row[some], start[some], end[some]

    def per_rank(self, column: IntArray) -> tuple[int, ...]:
        """A column of the all-to-alls summed up, one entry a rank."""
        total = np.zeros(self.tiles.ranks, dtype=np.int64)
        np.add.at(total, self.tiles.rank, column)
        return tuple(total.tolist())

    @property
    def fraction_exposed(self) -> float:
        """Σ exposed / Σ duration; 0 where there is none."""
        whole = int(self.duration.sum())
        return int(self.exposed.sum()) / whole if whole else 0.0

    def by_what(self) -> Mapping[What, tuple[int, int]]:
        """ns of each kind of all-to-all, and how much of it is exposed, in the order of kinds and parts."""
        found = _what(self.tiles.code)
        return {
            what: (int(self.duration[found == key].sum()), int(self.exposed[found == key].sum()))
            for key in np.unique(found).tolist()
            for what in (_named(key),)
        }

    def hidden_behind(self) -> Mapping[What, Mapping[What, int]]:
        """ns for which each kind of all-to-all was hidden behind each kind of compute, the longest first."""
        table: dict[What, dict[What, int]] = {}
        hidden, hiding = _what(self.tiles.code[self.piece]), _what(self.compute.code[self.behind])
        for key, by, time in zip(hidden.tolist(), hiding.tolist(), self.time.tolist(), strict=True):
            of = table.setdefault(_named(key), {})
            of[_named(by)] = of.get(_named(by), 0) + time
        return {what: dict(sorted(table[what].items(), key=lambda item: -item[1])) for what in sorted(table)}


def all_to_alls(timeline: Timeline, replica: int = 0) -> AllToAlls:
    """The all-to-alls of one replica of a timeline, ideal or measured, and what hid them."""
    is_mine = (timeline.replica == replica) & (timeline.lane == Lane.ALL_TO_ALL)
    tiles = timeline.where(is_mine & is_kind(timeline.code, *COMPUTE_KINDS))
    compute, first = by_rank(timeline, replica)
    hidden = np.zeros(len(tiles), dtype=np.int64)
    pieces: list[tuple[int, int, int, int]] = []
    firsts, rows = first.tolist(), np.searchsorted(tiles.rank, np.arange(tiles.ranks + 1)).tolist()
    for rank in range(tiles.ranks):
        begin, stop = firsts[rank], firsts[rank + 1]
        start, end = compute.start[begin:stop], compute.end[begin:stop]
        # What a recording shows at one time counts once: later tiles count from where earlier ones end.
        reached = np.maximum.accumulate(end) if end.size else end
        start = np.maximum(start, np.concatenate([start[:1], reached[:-1]]))
        starts, ends = start.tolist(), np.maximum(reached, start).tolist()
        nexts = np.searchsorted(reached, tiles.start[rows[rank] : rows[rank + 1]], side="right").tolist()
        for row, following in zip(range(rows[rank], rows[rank + 1]), nexts, strict=True):
            from_, until, at = int(tiles.start[row]), int(tiles.end[row]), following
            while at < len(starts) and starts[at] < until:
                since = max(starts[at], from_)
                time = min(ends[at], until) - since
                if time > 0:
                    pieces.append((row, begin + at, since, time))
                    hidden[row] += time
                at += 1
    table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
    return AllToAlls(tiles, compute, hidden, *table.T)


@dataclass(frozen=True, slots=True)
class PairOverlap:
    """The all-to-alls of one pair of microbatches; times in ns.

    Args:
        pair: Whose forward and backward, whole stages.
        rank: Where.
        start, end: Of its first and last part, on either lane.
        compute, all_to_all: What each lane does for it.
        exposed: Of its all-to-alls, without any compute of the rank.
    """

    pair: Pair
    rank: int
    start: int
    end: int
    compute: int
    all_to_all: int
    exposed: int

    @property
    def hidden(self) -> int:
        """ns of its all-to-alls under compute."""
        return self.all_to_all - self.exposed

    @property
    def limit(self) -> Limit:
        """What decides how long it takes."""
        if self.exposed <= _NOTHING_TO_SPEAK_OF * self.all_to_all:
            return Limit.COMPUTE
        return Limit.COMMUNICATION if self.all_to_all > self.compute else Limit.ORDER

    def to_dict(self) -> dict[str, str | int]:
        """As plain values, times in ns."""
        return {
            "pair": str(self.pair),
            "rank": self.rank,
            "start_ns": self.start,
            "end_ns": self.end,
            "compute_ns": self.compute,
            "all_to_all_ns": self.all_to_all,
            "exposed_ns": self.exposed,
            "limit": str(self.limit),
        }


def pair_overlaps(schedule: Schedule, of: AllToAlls) -> list[PairOverlap]:
    """What became of the all-to-alls of every pair, rank by rank in list order.

    Args:
        schedule: Which pairs there are; of whole stages, or in parts of layers.
        of: Of a timeline of its parts. Pairs of which it has nothing are left out.
    """
    code = np.concatenate([of.tiles.code, of.compute.code])
    kind = code_kind(code)
    backward = (kind == Kind.I) | (kind == Kind.W) | (kind == Kind.B)
    # A chunk of work is a whole stage's forward, or its backward with whatever weight gradients are its own.
    chunk = np.where(backward, with_kind(whole_stage(code), Kind.B), whole_stage(code))
    start, end = (np.concatenate([getattr(of.tiles, name), getattr(of.compute, name)]) for name in ("start", "end"))
    travels = np.arange(code.size) < len(of.tiles)
    exposed = np.concatenate([of.exposed, np.zeros(len(of.compute), dtype=np.int64)])

    names, index = np.unique(chunk, return_inverse=True)
    first, last = np.full(names.size, np.iinfo(np.int64).max), np.full(names.size, np.iinfo(np.int64).min)
    np.minimum.at(first, index, start)
    np.maximum.at(last, index, end)
    sums = []
    for amount in (np.where(travels, 0, end - start), np.where(travels, end - start, 0), exposed):
        total = np.zeros(names.size, dtype=np.int64)
        np.add.at(total, index, amount)
        sums.append(total.tolist())
    place = {name: at for at, name in enumerate(names.tolist())}
    out = []
    for on, forward, backward_code in _pairs(schedule):
        f, b = place.get(forward), place.get(int(with_kind(backward_code, Kind.B)))
        if f is None or b is None:
            continue
        out.append(
            PairOverlap(
                Pair(Action.from_code(forward), Action.from_code(backward_code)),
                on,
                int(min(first[f], first[b])),
                int(max(last[f], last[b])),
                *(total[f] + total[b] for total in sums),
            )
        )
    return out


def _pairs(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    """Rank, forward and backward of every pair, as codes of whole stages, rank by rank in list order."""
    if not schedule.has_parts:
        rows = np.flatnonzero(schedule.partner != NO_ACTION)
        columns = (schedule.rank[rows], schedule.code[rows], schedule.partner[rows])
        yield from zip(*(column.tolist() for column in columns), strict=True)
        return
    for rank in range(schedule.ranks):
        rows = np.arange(schedule.first[rank], schedule.first[rank + 1])
        for group in np.split(rows, np.flatnonzero(schedule.fences[rows])):
            yield from ((rank, *pair) for pair in _pairs_between_fences(schedule, group))


def _pairs_between_fences(schedule: Schedule, rows: IntArray) -> list[tuple[int, int]]:
    """The pairs that some rows of a list in parts are, none where they are anything else.

    The mlp of the first layer that each half comes to tells it: nothing ever moves that out of its pair.
    """
    code = schedule.code[rows]
    kind, layer = code_kind(code), code_layer(code)
    mlp, last = code_part(code) == Part.MLP, schedule.chain.layers[code_stage(code)] - 1
    split = set(whole_stage(code[kind == Kind.W]).tolist())
    forward = np.flatnonzero(mlp & (kind == Kind.F) & (layer == 0))
    backward = np.flatnonzero(mlp & ((kind == Kind.B) | (kind == Kind.I)) & (layer == last))
    # One pair after the other: both halves of each before either of the next.
    ahead, behind = np.sort(np.array([forward, backward]), axis=0) if forward.size == backward.size else ([], [])
    if not len(ahead) or (np.array(behind[:-1]) > np.array(ahead[1:])).any():
        return []
    pairs = []
    for f, b in zip(whole_stage(code[forward]).tolist(), whole_stage(code[backward]).tolist(), strict=True):
        # An I with its W among these rows is what a full backward was made into.
        whole = int(with_kind(b, Kind.B)) if int(with_kind(b, Kind.W)) in split else b
        if int(with_kind(f, Kind.B)) != int(with_kind(b, Kind.B)):
            pairs.append((f, whole))
    return pairs


def limits(pairs: Sequence[PairOverlap]) -> Mapping[Limit, int]:
    """How many pairs are limited by what; those that none is by are left out."""
    found = [pair.limit for pair in pairs]
    return {limit: found.count(limit) for limit in Limit if limit in found}


def _what(code: IntArray) -> IntArray:
    return code_kind(code) * (Part.COMBINE + 1) + code_part(code)


def _named(key: int) -> What:
    kind, part = divmod(key, Part.COMBINE + 1)
    return Kind(kind), Part(part) if part else None
