"""What is counted over time beside the tiles: memory in flight, idle ranks, drift."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipetrace.action import IntArray, Kind
from pipetrace.metrics import ALL_FREED_AT, Series, all_to_alls, memory_over_time
from pipetrace.timeline import COLUMNS, Timeline

_TILES_AT_ONCE = 1 << 15


def in_flight_series(timeline: Timeline, release: Kind) -> list[Series]:
    """Activations that each rank holds over time, in chunks, 0 at first.

    Args:
        timeline: Whose tiles.
        release: `Kind.I` for activations freed at the end of I, `Kind.W` at the end of W; a B frees at its end.

    Returns:
        One series a rank, replica after replica; empty for one that never holds any.
    """
    none = np.zeros(0, dtype=np.int64)
    begin = timeline.span[0]
    found = []
    for replica, first, last in _parts(timeline):
        # A rank's activations are taken and freed on it, so that a few ranks at a time make the same series.
        for series in memory_over_time(_ranks(timeline, replica, first, last), ALL_FREED_AT[release]).series:
            time, value = series.time, series.value
            if not value.any():
                time, value = none, none
            elif time[0] > begin:
                time, value = np.concatenate([[begin], time]), np.concatenate([[0], value])
            found.append(Series(time, value))
    return found


def _parts(timeline: Timeline) -> Iterator[tuple[int, int, int]]:
    """(replica, first rank, rank after the last), so that each part has a bounded number of tiles where it can."""
    for replica in range(timeline.replicas):
        first = 0
        while first < timeline.ranks:
            begin, _ = timeline.rows_of(replica, first)
            last = first + 1
            while last < timeline.ranks and timeline.rows_of(replica, last)[1] - begin <= _TILES_AT_ONCE:
                last += 1
            yield replica, first, last
            first = last


def _ranks(timeline: Timeline, replica: int, first: int, last: int) -> Timeline:
    """Some ranks of a replica, counted from 0."""
    rows = slice(timeline.rows_of(replica, first)[0], timeline.rows_of(replica, last - 1)[1])
    columns = {name: getattr(timeline, name)[rows] for name in COLUMNS}
    return Timeline(
        last - first, **(columns | {"rank": columns["rank"] - first, "replica": np.zeros_like(columns["replica"])})
    )


def exposed_series(timeline: Timeline) -> list[Series]:
    """Whether an all-to-all of each rank runs while the rank computes nothing: 1 or 0.

    Returns:
        One series a rank, replica after replica; empty for one whose all-to-alls are all hidden.
    """
    found = []
    for replica in range(timeline.replicas):
        of = all_to_alls(timeline, replica)
        row, start, end = of.exposed_spans()
        rank = of.tiles.rank[row]
        for at in range(timeline.ranks):
            mine = rank == at
            n = int(mine.sum())
            times, changes = np.concatenate([start[mine], end[mine]]), np.repeat(np.array([1, -1], dtype=np.int64), n)
            found.append(Series.of_changes(times, changes))
    return found


def idle_series(timeline: Timeline) -> Series:
    """How many ranks, of all replicas, stand idle, from the first to the last F, B, I or W; 0 after it."""
    if not timeline.is_compute.any():
        return Series(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    times, changes = [], []
    for process in range(timeline.ranks * timeline.replicas):
        first, last = timeline.rows_of(*divmod(process, timeline.ranks))
        computes = timeline.is_compute[first:last]
        start = timeline.start[first:last][computes]
        end = np.maximum.accumulate(timeline.end[first:last][computes])
        # Where tiles touch or overlap, a rank is busy once.
        opens = np.concatenate([[True], start[1:] > end[:-1]])[: start.size]
        closes = np.concatenate([opens[1:], [True]])[: start.size]
        times += [start[opens], end[closes]]
        changes += [np.full(int(opens.sum()), -1), np.full(int(closes.sum()), 1)]
    total = timeline.ranks * timeline.replicas
    return Series.of_changes(
        np.concatenate([*times, timeline.span]).astype(np.int64),
        np.concatenate([*changes, [total, -total]]).astype(np.int64),
    )


def drift_series(measured_end: IntArray, ideal_end: IntArray) -> Series:
    """Measured end - ideal end of matched actions, at the measured end; ns. Two arrays of shape (n,), any order."""
    order = np.lexsort((ideal_end, measured_end))
    time, value = measured_end[order], (measured_end - ideal_end)[order]
    last = np.concatenate([time[1:] != time[:-1], [True]]) if time.size else np.zeros(0, dtype=np.bool_)
    return Series(time[last], value[last])
