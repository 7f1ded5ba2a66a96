"""What is counted over time beside the tiles: memory in flight, idle ranks, drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import NO_ACTION, BoolArray, IntArray, Kind, code_kind, code_microbatch, code_pipe, code_stage
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Series:
    """A step function.

    Args:
        time: When it changes, ns, strictly rising; shape (n,).
        value: From then on; shape (n,).
    """

    time: IntArray
    value: IntArray

    @classmethod
    def of_changes(cls, time: IntArray, change: IntArray) -> Series:
        """The running sum of changes in any order; those at one time count as one."""
        at, index = np.unique(time, return_inverse=True)
        net = np.zeros(at.size, dtype=np.int64)
        np.add.at(net, index, change)
        return cls(at, np.cumsum(net))


def halves(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Every action of a timeline by itself, a pair's two halves apart.

    Returns:
        Codes, and the row of each in the timeline; two arrays of shape (n + pairs,).
    """
    rows = np.arange(len(timeline), dtype=np.int64)
    paired = timeline.partner != NO_ACTION
    return np.concatenate([timeline.code, timeline.partner[paired]]), np.concatenate([rows, rows[paired]])


def chunk_keys(timeline: Timeline, codes: IntArray, rows: IntArray) -> tuple[IntArray, int]:
    """A number for each (replica, pipe, stage, microbatch), so that all parts of one chunk's work share it.

    Returns:
        The keys, shape of `codes`, and by how much the key of the next stage is higher; no other key lies there.
    """
    stage, microbatch, pipe = code_stage(codes), code_microbatch(codes) + 1, code_pipe(codes)
    per_stage = int(microbatch.max(initial=0)) + 1
    per_pipe = int(stage.max(initial=0)) + 3  # a gap, so that no stage's neighbour is another pipe's
    per_replica = int(pipe.max(initial=0)) + 1
    key: IntArray = ((timeline.replica[rows] * per_replica + pipe) * per_pipe + stage + 1) * per_stage + microbatch
    return key, per_stage


def in_flight_series(timeline: Timeline, mine: BoolArray, release: Kind) -> Series:
    """Activations held over time, in chunks: one taken at a forward's start, freed at the end of its backward.

    Args:
        timeline: Whose tiles.
        mine: Which tiles count, usually one rank's; shape (n,).
        release: `Kind.I` for activations freed at the end of I, `Kind.W` at the end of W; a B frees at its end.
    """
    codes, rows = halves(timeline)
    kind = code_kind(codes)
    counts = mine[rows] & np.isin(kind, [int(Kind.F), int(Kind.B), int(release)])
    codes, rows, kind = codes[counts], rows[counts], kind[counts]
    key, _ = chunk_keys(timeline, codes, rows)
    taken, freed = kind == Kind.F, kind != Kind.F
    # Of a layer's parts the first takes and the last frees.
    chunk, index = np.unique(key[taken], return_inverse=True)
    start = np.full(chunk.size, np.iinfo(np.int64).max)
    np.minimum.at(start, index, timeline.start[rows[taken]])
    freed_chunk, index = np.unique(key[freed], return_inverse=True)
    end = np.full(freed_chunk.size, np.iinfo(np.int64).min)
    np.maximum.at(end, index, timeline.end[rows[freed]])
    # What a trace begins in the middle of was taken before it: freeing it would count below zero.
    known = np.isin(freed_chunk, chunk)
    end = np.maximum(end[known], start[np.searchsorted(chunk, freed_chunk[known])])
    return Series.of_changes(
        np.concatenate([start, end]),
        np.concatenate([np.ones(start.size, dtype=np.int64), np.full(end.size, -1, dtype=np.int64)]),
    )


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
