"""What each rank holds over time: activations, output gradients and parameters, in bytes or chunks.

An F takes its activation when it starts. Part of that is freed when the I (or B) of the same stage and microbatch
ends, part when the W (or B) ends. The output gradient is there from the start of I to the end of W. The parameters of
all stages that a rank holds are there all the time; the ranks of a bidirectional schedule hold several.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import (
    COMPUTE_KINDS,
    BoolArray,
    IntArray,
    Kind,
    code_pipe,
    code_stage,
)
from pipetrace.metrics.chunks import chunk_keys, halves
from pipetrace.metrics.peaks import PeakInFlight
from pipetrace.metrics.series import Series
from pipetrace.metrics.sizes import ALL_FREED_AT, MemorySizes
from pipetrace.metrics.tiles import is_kind
from pipetrace.timeline import Timeline

_NO_PLACE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class MemoryOverTime:
    """What the ranks of one replica hold; tuples have one entry a rank.

    Args:
        unit: "bytes" or "chunks".
        span: Start of the first and end of the last F, B, I or W, in ns.
        parameters: What is held all the time; contained in the figures below.
        series: What is held from the start of `span` on. What is freed and taken at one instant is no dip.
        peak: The most that is held at once. A tile that takes no time counts too, though no series shows it.
    """

    unit: str
    span: tuple[int, int]
    parameters: tuple[int, ...]
    series: tuple[Series, ...]
    peak: tuple[int, ...]

    @property
    def mean(self) -> tuple[float, ...]:
        """The time-weighted mean over `span`; 0 where that is empty."""
        return tuple(series.mean(*self.span) for series in self.series)


def memory_over_time(timeline: Timeline, sizes: MemorySizes | None = None, *, replica: int = 0) -> MemoryOverTime:
    """What each rank of one replica holds over time, ideal or measured.

    Of a layer's parts the first takes and the last frees. A backward whose forward is not in the timeline frees
    nothing: what a recording begins in the middle of is not known. Where there is no I, W frees all.

    Args:
        timeline: Where the actions stand in time.
        sizes: How large things are; one chunk an activation, freed at W, when None.
        replica: Which replica.
    """
    sizes = sizes or MemorySizes()
    tiles = timeline.where(is_kind(timeline.code, *COMPUTE_KINDS) & (timeline.replica == replica))
    span = tiles.span
    codes, rows = halves(tiles)
    events = _Events(tiles, codes, rows, sizes)
    parameters = _parameters(tiles, codes, rows, sizes)
    series, peaks = [], []
    for rank, held in enumerate(parameters):
        time, change = events.of(rank)
        running = held + np.cumsum(change)
        peaks.append(int(running.max(initial=held)))
        last = np.flatnonzero(np.diff(time, append=_NO_PLACE))
        time, running = time[last], running[last]
        if not time.size or time[0] > span[0]:
            time, running = np.concatenate([[span[0]], time]), np.concatenate([[held], running])
        changes = np.diff(running, prepend=running[0] - 1) != 0
        series.append(Series(time[changes], running[changes]))
    return MemoryOverTime(sizes.unit, span, tuple(parameters), tuple(series), tuple(peaks))


class _Events:
    """What is taken and freed, in the order in which it happens on each rank.

    At one instant what ends is freed before what starts is taken, except that a tile without length takes before it
    frees: the order of tiles decides, and within a tile taking comes first.
    """

    def __init__(self, tiles: Timeline, codes: IntArray, rows: IntArray, sizes: MemorySizes) -> None:
        key, _ = chunk_keys(tiles, codes, rows)
        _, example, chunk = np.unique(key, return_index=True, return_inverse=True)
        self._tiles, self._rows, self._chunk, self._chunks = tiles, rows, chunk, example.size
        self._place = np.empty(len(tiles), dtype=np.int64)
        self._place[np.lexsort((tiles.end, tiles.start))] = np.arange(len(tiles))

        takes = self._first(is_kind(codes, Kind.F))
        input_ends = self._last(is_kind(codes, Kind.I, Kind.B))
        weight_ends = self._last(is_kind(codes, Kind.W, Kind.B))
        input_ends = np.where(input_ends < 0, weight_ends, input_ends)
        gradients = self._first(is_kind(codes, Kind.I, Kind.B))

        stage = code_stage(codes[example])
        at_input, at_weight, gradient = (
            _of_stages(sizes, name, stage)
            for name in ("activation_freed_at_input", "activation_freed_at_weight", "gradient")
        )
        known = takes >= 0
        self._parts: list[tuple[IntArray, ...]] = []  # rank, time, order, change
        self._add(takes, takes, at_input + at_weight, known, ends=False)
        self._add(input_ends, takes, -at_input, known & (input_ends >= 0), ends=True)
        self._add(weight_ends, takes, -at_weight, known & (weight_ends >= 0), ends=True)
        has_gradient = known & (gradients >= 0)
        self._add(gradients, takes, gradient, has_gradient, ends=False)
        self._add(weight_ends, takes, -gradient, has_gradient & (weight_ends >= 0), ends=True)
        rank, time, order, change = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        sequence = np.lexsort((order, time, rank))
        self._by_rank = np.searchsorted(rank[sequence], np.arange(tiles.ranks + 1)).tolist()
        self._times, self._changes = time[sequence], change[sequence]

    def of(self, rank: int) -> tuple[IntArray, IntArray]:
        """Times in ns and changes of one rank, in order."""
        mine = slice(self._by_rank[rank], self._by_rank[rank + 1])
        return self._times[mine], self._changes[mine]

    def _first(self, which: BoolArray) -> IntArray:
        """For each chunk the row that starts first among some halves; -1 where there is none."""
        found = np.full(self._chunks, _NO_PLACE, dtype=np.int64)
        np.minimum.at(found, self._chunk[which], self._place[self._rows[which]])
        row_at = np.argsort(self._place)
        return np.where(found == _NO_PLACE, -1, row_at[np.minimum(found, row_at.size - 1)]) if row_at.size else found

    def _last(self, which: BoolArray) -> IntArray:
        """For each chunk the row that ends last among some halves; -1 where there is none."""
        row_at = np.lexsort((self._place, self._tiles.end))
        place = np.empty_like(row_at)
        place[row_at] = np.arange(row_at.size)
        found = np.full(self._chunks, -1, dtype=np.int64)
        np.maximum.at(found, self._chunk[which], place[self._rows[which]])
        return np.where(found < 0, -1, row_at[found]) if row_at.size else found

    def _add(self, row: IntArray, taker: IntArray, amount: IntArray, which: BoolArray, *, ends: bool) -> None:
        which = which & (amount != 0)
        row, taker, amount = row[which], taker[which], amount[which]
        time, place = (self._tiles.end if ends else self._tiles.start)[row], self._place[row]
        # Clocks that differ may show an end before the start: nothing is freed before it was taken.
        taken, taken_place = self._tiles.start[taker], self._place[taker]
        early = (time < taken) | ((time == taken) & (place < taken_place))
        time, order = np.where(early, taken, time), np.where(early, taken_place, place) * 2 + int(ends)
        self._parts.append((self._tiles.rank[taker], time, order, amount))


def _of_stages(sizes: MemorySizes, name: str, stage: IntArray) -> IntArray:
    """One of the sizes for each of some stages; shape of `stage`."""
    table = np.array([getattr(sizes.of(s), name) for s in range(int(stage.max(initial=-1)) + 1)], dtype=np.int64)
    return table[stage]


def _parameters(tiles: Timeline, codes: IntArray, rows: IntArray, sizes: MemorySizes) -> list[int]:
    """What the stages take that each rank works on; each pipe has its own copy."""
    held = [0] * tiles.ranks
    if any(of.parameters for of in (sizes.default, *sizes.stages.values())):
        pipe, stage = code_pipe(codes), code_stage(codes)
        pipes, stages = int(pipe.max(initial=0)) + 1, int(stage.max(initial=0)) + 1
        for of in np.unique((tiles.rank[rows] * pipes + pipe) * stages + stage).tolist():
            held[of // (pipes * stages)] += sizes.of(of % stages).parameters
    return held


def peak_in_flight_of(timeline: Timeline, replica: int = 0) -> PeakInFlight:
    """Peak activations in flight of a timeline, ideal or measured, in chunks.

    Where every rank kept its list's order this is `peak_in_flight` of the schedule.
    """
    freed_at_input, freed_at_weight = (
        memory_over_time(timeline, ALL_FREED_AT[release], replica=replica).peak for release in (Kind.I, Kind.W)
    )
    return PeakInFlight(freed_at_input, freed_at_weight)
