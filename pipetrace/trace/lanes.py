"""Lanes whose tiles overlap, spread over as many tracks as it takes."""

from __future__ import annotations

import heapq

import numpy as np

from pipetrace.action import IntArray


def sub_lanes(group: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """Numbers the tiles of each group so that two of one number do not overlap; touching is no overlap.

    Args:
        group, start, end: Of all tiles, sorted by group, then start; shape (n,).

    Returns:
        For each tile the lowest number free at its start, from 0; shape (n,).
    """
    sub = np.zeros(group.size, dtype=np.int64)
    overlaps = (group[1:] == group[:-1]) & (start[1:] < end[:-1])
    for of in np.unique(group[1:][overlaps]).tolist():
        first, last = np.searchsorted(group, [of, of + 1])
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        for row, (begins, ends) in enumerate(
            zip(start[first:last].tolist(), end[first:last].tolist(), strict=True), start=int(first)
        ):
            while busy and busy[0][0] <= begins:
                heapq.heappush(free, heapq.heappop(busy)[1])
            number = heapq.heappop(free) if free else len(busy)
            sub[row] = number
            heapq.heappush(busy, (ends, number))
    return sub


def overlapping_sub_lanes(group: IntArray, start: IntArray, end: IntArray) -> IntArray | None:
    """As `sub_lanes`, for tiles in any order, one without length counting as one of 1 ns.

    Viewers would nest a tile of no length in what starts with it, and bind that one's arrows to it. The longer goes
    first, so that it keeps its track.

    Returns:
        None where nothing overlaps, so that all are on the lowest.
    """
    shown_end = np.maximum(end, start + 1)
    follows = group[1:] == group[:-1]
    if (group[1:] >= group[:-1]).all() and not (follows & (start[1:] < shown_end[:-1])).any():
        return None
    order = np.lexsort((-shown_end, start, group))
    sub = np.empty(group.size, dtype=np.int64)
    sub[order] = sub_lanes(group[order], start[order], shown_end[order])
    return sub if sub.any() else None
