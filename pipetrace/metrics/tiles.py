"""The compute tiles of one replica, rank by rank."""

from __future__ import annotations

import numpy as np

from pipetrace.action import NO_ACTION, BoolArray, IntArray, code_kind
from pipetrace.timeline import Timeline


def by_rank(timeline: Timeline, replica: int = 0) -> tuple[Timeline, IntArray]:
    """The F, B, I and W of one replica's compute lanes.

    Returns:
        The tiles, and the row at which each rank's begin, with their number at the end; shape (ranks + 1,).
    """
    tiles = timeline.where(timeline.is_compute & (timeline.replica == replica))
    return tiles, np.searchsorted(tiles.rank, np.arange(timeline.ranks + 1))


def is_kind(codes: IntArray, *kinds: int) -> BoolArray:
    """Which codes are of one of some kinds; shape of `codes`."""
    kind = code_kind(codes)
    found: BoolArray = np.zeros(kind.shape, dtype=np.bool_)
    for wanted in kinds:  # a handful: faster than isin, which sorts
        found |= kind == int(wanted)
    return found


def backward_half(code: IntArray, partner: IntArray) -> IntArray:
    """The backward half of each row: its partner where it is a pair, else the row's own code."""
    half: IntArray = np.where(partner != NO_ACTION, partner, code)
    return half


def covered(start: IntArray, end: IntArray, until: int) -> int:
    """ns before `until` that intervals sorted by start cover; what overlaps counts once."""
    if not start.size:
        return 0
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(np.minimum(end, until) - np.maximum(start, before), 0).sum())


class Lookup:
    """Codes and the rows in which they stand.

    Args:
        codes: Each once; shape (n,).
        rows: Likewise.
    """

    def __init__(self, codes: IntArray, rows: IntArray) -> None:
        order = np.argsort(codes, kind="stable")
        self._codes, self._rows = codes[order], rows[order]

    def find(self, codes: IntArray) -> IntArray:
        """The row of each code; -1 where it is nowhere. Shape of `codes`."""
        if not self._codes.size:
            return np.full(codes.size, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._codes, codes), self._codes.size - 1)
        return np.where(self._codes[at] == codes, self._rows[at], -1)
