"""Arrows between tiles: what a tile waited for, and its counterpart in the other timeline.

A viewer binds an arrow's ends to the slices in which they lie, drops an arrow that goes back in time without a word,
and turns one around whose first slice starts after the second. Ideal tiles always allow one; measured ones may not, as
ranks' clocks differ. So both ends are placed here, once for every format, and what cannot be placed is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind
from pipetrace.metrics import chunk_keys
from pipetrace.metrics.tiles import is_kind
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows from slice to slice.

    Args:
        producer, consumer: Slices; shape (n,).
        leave, arrive: When the ends stand, ns: inside their slices, and leave < arrive; shape (n,). An arrow arrives
            at its slice's start, unless both start at the same time.
        dropped: How many could not be placed.
    """

    producer: IntArray
    consumer: IntArray
    leave: IntArray
    arrive: IntArray
    dropped: int

    @classmethod
    def joined(cls, several: Sequence[Arrows]) -> Arrows:
        """One after the other."""
        producer, consumer, leave, arrive = (
            np.concatenate([getattr(arrows, name) for arrows in several])
            for name in ("producer", "consumer", "leave", "arrive")
        )
        return cls(producer, consumer, leave, arrive, sum(arrows.dropped for arrows in several))


def dependencies(timeline: Timeline, kinds: tuple[Kind, ...], stage_step: int) -> tuple[IntArray, IntArray]:
    """Which tile waits for which tile of another rank.

    Args:
        timeline: Where the tiles stand.
        kinds: (F,) for forwards, (I, B) for backwards.
        stage_step: +1 where a stage feeds the next, -1 where it feeds the one before.

    Returns:
        Rows of the producers and of the consumers; of a stage that runs in parts the last and the first part.
    """
    codes, rows = _of_kinds(timeline, kinds)
    key, next_stage = chunk_keys(timeline, codes, rows)
    by_start = np.lexsort((timeline.start[rows], key))
    consumer_key, at = np.unique(key[by_start], return_index=True)
    consumer = rows[by_start][at]
    by_end = np.lexsort((-timeline.end[rows], key))
    producer_key, at = np.unique(key[by_end], return_index=True)
    producer = rows[by_end][at]

    if not producer.size:
        return producer, consumer
    found = np.searchsorted(producer_key, consumer_key - stage_step * next_stage)
    found = np.minimum(found, producer_key.size - 1)
    exists = producer_key[found] == consumer_key - stage_step * next_stage
    producer, consumer = producer[found[exists]], consumer[exists]
    apart = timeline.rank[producer] != timeline.rank[consumer]
    return producer[apart], consumer[apart]


def _of_kinds(timeline: Timeline, kinds: tuple[Kind, ...]) -> tuple[IntArray, IntArray]:
    """Codes and rows of the actions of some kinds, a pair's halves apart."""
    alone = np.flatnonzero(is_kind(timeline.code, *kinds))
    paired = np.flatnonzero(is_kind(timeline.partner, *kinds))
    return np.concatenate([timeline.code[alone], timeline.partner[paired]]), np.concatenate([alone, paired])


def place(start: IntArray, end: IntArray, producer: IntArray, consumer: IntArray) -> Arrows:
    """Puts the ends of arrows inside their slices, as near to the data's way as time allows.

    Args:
        start, end: Of all slices, ns.
        producer, consumer: Slices at the two ends; shape (n,).
    """
    first, last = start[producer], np.maximum(start[producer], end[producer] - 1)
    leave = np.clip(start[consumer] - 1, first, last)
    arrive = np.maximum(start[consumer], leave + 1)
    forward = start[producer] <= start[consumer]
    legal: BoolArray = forward & ((arrive == start[consumer]) | (arrive < end[consumer]))
    return Arrows(producer[legal], consumer[legal], leave[legal], arrive[legal], int((~legal).sum()))


def place_either_way(start: IntArray, end: IntArray, one: IntArray, other: IntArray) -> Arrows:
    """As `place`, for arrows that may point either way: from what starts first."""
    swap = start[other] < start[one]
    return place(start, end, np.where(swap, other, one), np.where(swap, one, other))


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """The ends of arrows that lie in some slices.

    Args:
        row: In which of them, rising; shape (k,).
        arrow: Number of each end's arrow; shape (k,).
        at: When it stands, ns; shape (k,).
    """

    row: IntArray
    arrow: IntArray
    at: IntArray

    def where(self, mask: BoolArray) -> Ends:
        """Those that `mask`, shape (k,), picks."""
        return Ends(self.row[mask], self.arrow[mask], self.at[mask])


_NONE = np.zeros(0, dtype=np.int64)
NO_ENDS = Ends(_NONE, _NONE, _NONE)


class EndsBySlice:
    """All ends of one kind, found by the slices in which they lie.

    Args:
        at_slice: In which slice each arrow's end lies; shape (arrows,).
        at: When, ns; shape (arrows,).
    """

    def __init__(self, at_slice: IntArray, at: IntArray) -> None:
        order = np.argsort(at_slice, kind="stable")
        self._at = at[order]
        # There are as many as slices: half the memory, where their number allows it.
        small = np.int32 if max(order.size, int(at_slice.max(initial=0))) < 1 << 31 else np.int64
        self._slice, self._arrow = at_slice[order].astype(small), order.astype(small)

    def of(self, first: int, last: int) -> Ends:
        """The ends in the slices from `first` to before `last`, rows counted from `first`."""
        low, high = np.searchsorted(self._slice, np.array((first, last), dtype=self._slice.dtype))
        row, arrow = (column[low:high].astype(np.int64) for column in (self._slice, self._arrow))
        return Ends(row - first, arrow, self._at[low:high])
