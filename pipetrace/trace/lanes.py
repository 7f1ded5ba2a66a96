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
