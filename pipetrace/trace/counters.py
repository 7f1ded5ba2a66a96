"""What is counted over time beside the tiles: memory in flight, idle ranks, drift."""

from __future__ import annotations

import numpy as np

from pipetrace.action import IntArray, Kind
from pipetrace.metrics import ALL_FREED_AT, Series, memory_over_time
from pipetrace.timeline import Timeline


def in_flight_series(timeline: Timeline, release: Kind, replica: int = 0) -> list[Series]:
    """Activations that each rank holds over time, in chunks.

    Args:
        timeline: Whose tiles.
        release: `Kind.I` for activations freed at the end of I, `Kind.W` at the end of W; a B frees at its end.
        replica: Which replica.

    Returns:
        One series a rank; empty for one that never holds any.
    """
    none = np.zeros(0, dtype=np.int64)
    every = memory_over_time(timeline, ALL_FREED_AT[release], replica=replica).series
    return [series if series.value.any() else Series(none, none) for series in every]


def idle_series(timeline: Timeline) -> Series:
    """How many ranks, of all replicas, stand idle, from the first to the last F, B, I or W; 0 after it."""
    tiles = timeline.where(timeline.is_compute)
    if not len(tiles):
        return Series(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    process = tiles.replica * tiles.ranks + tiles.rank
    times, changes = [], []
    for of in np.unique(process).tolist():
        mine = process == of
        start, end = tiles.start[mine], np.maximum.accumulate(tiles.end[mine])
        # Where tiles overlap, a rank is busy once.
        opens = np.concatenate([[True], start[1:] > end[:-1]])
        closes = np.concatenate([opens[1:], [True]])
        times += [start[opens], end[closes]]
        changes += [np.full(int(opens.sum()), -1), np.full(int(closes.sum()), 1)]
    total = timeline.ranks * timeline.replicas
    first, last = tiles.span
    return Series.of_changes(
        np.concatenate([*times, [first, last]]).astype(np.int64),
        np.concatenate([*changes, [total, -total]]).astype(np.int64),
    )


def drift_series(measured_end: IntArray, ideal_end: IntArray) -> Series:
    """Measured end - ideal end of matched actions, at the measured end; ns. Two arrays of shape (n,), any order."""
    order = np.lexsort((ideal_end, measured_end))
    time, value = measured_end[order], (measured_end - ideal_end)[order]
    last = np.concatenate([time[1:] != time[:-1], [True]]) if time.size else np.zeros(0, dtype=np.bool_)
    return Series(time[last], value[last])
