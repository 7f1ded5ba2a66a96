"""Arrows between tiles: what a tile waited for, and its counterpart in the other timeline.

A viewer binds an arrow's ends to the slices in which they lie, and drops an arrow that goes back in time without a
word. Ideal tiles always allow one; measured ones may not, as ranks' clocks differ. So both ends are placed here, once
for every format, and what cannot be placed is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind, code_kind
from pipetrace.metrics import chunk_keys, halves
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows from slice to slice.

    Args:
        producer, consumer: Slices; shape (n,).
        leave, arrive: When the ends stand, ns: inside their slices, and leave < arrive; shape (n,).
        dropped: How many could not be placed.
    """

    producer: IntArray
    consumer: IntArray
    leave: IntArray
    arrive: IntArray
    dropped: int


def dependencies(timeline: Timeline, kinds: tuple[Kind, ...], stage_step: int) -> tuple[IntArray, IntArray]:
    """Which tile waits for which tile of another rank.

    Args:
        timeline: Where the tiles stand.
        kinds: (F,) for forwards, (I, B) for backwards.
        stage_step: +1 where a stage feeds the next, -1 where it feeds the one before.

    Returns:
        Rows of the producers and of the consumers; of a stage that runs in parts the last and the first part.
    """
    codes, rows = halves(timeline)
    chosen = np.isin(code_kind(codes), [int(kind) for kind in kinds])
    codes, rows = codes[chosen], rows[chosen]
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


def place(start: IntArray, end: IntArray, producer: IntArray, consumer: IntArray) -> Arrows:
    """Puts the ends of arrows inside their slices, as near to the data's way as time allows.

    Args:
        start, end: Of all slices, ns.
        producer, consumer: Slices at the two ends; shape (n,).
    """
    first, last = start[producer], np.maximum(start[producer], end[producer] - 1)
    leave = np.clip(start[consumer] - 1, first, last)
    arrive = np.maximum(start[consumer], leave + 1)
    legal: BoolArray = (arrive == start[consumer]) | (arrive < end[consumer])
    return Arrows(producer[legal], consumer[legal], leave[legal], arrive[legal], int((~legal).sum()))


def place_either_way(start: IntArray, end: IntArray, one: IntArray, other: IntArray) -> Arrows:
    """As `place`, for arrows that may point either way: from what starts first."""
    swap = start[other] < start[one]
    return place(start, end, np.where(swap, other, one), np.where(swap, one, other))
