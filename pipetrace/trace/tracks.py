"""What a written trace shows: processes, tracks, slices, arrows and counters.

Every writer writes from this one description, so that the formats cannot drift apart. A process is a rank of one
timeline; its tracks are the lanes, and where tiles of a lane overlap (transfers under way together) as many more as it
takes, because viewers drop slices that overlap on a track. Times are ns from a zero before which nothing lies.

Slices come in blocks of columns, so that a million of them are cheap in time and in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np

from pipetrace.action import IntArray, Kind, code_microbatch
from pipetrace.costs import Costs
from pipetrace.metrics import Series
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Lane, Timeline
from pipetrace.trace.counterparts import NO_TILE, Counterparts, counterparts
from pipetrace.trace.counters import drift_series, exposed_series, idle_series, in_flight_series
from pipetrace.trace.description import LANES, CounterTrack, Process, Slices, Track
from pipetrace.trace.flows import NO_ENDS, Arrows, EndsBySlice, dependencies, place, place_either_way
from pipetrace.trace.lanes import overlapping_sub_lanes
from pipetrace.trace.marks import Marks, idle_marks, phase_marks, waits
from pipetrace.trace.naming import Arg, several_stages, tile_args, tile_name
from pipetrace.trace.recorded import Recorded

_LANE_OF_TILE = np.array([LANES.index(name) for name in ("compute", "all-to-all", "send", "recv")])  # by `Lane`
_MOST_SUB_LANES = 1 << 30
_ROWS = 1 << 14  # of a block

Labelled: TypeAlias = Sequence[tuple[str, Timeline]]
AnyInt = TypeVar("AnyInt", int, IntArray)


class Tracks:
    """The description of one timeline, or of two with the second held against the first.

    Two timelines are put on a common zero, the first F, B, I or W of each, and shown rank by rank.

    Args:
        timelines: One or two, with what to call them, e.g. ("ideal", …), ("measured", …).
        schedule: What they are of; without it idle time is not explained.
        costs: What the first was simulated with.
        more: What else the tiles of the last say of themselves: annotations of some rows.
        recorded: What was recorded besides, on the clock of the last.

    Attributes:
        processes, tracks, counters: To be declared before the slices.
        whole: The process of all ranks together.
        arrows: How many there are.
        epoch: Unix time in ns of zero; 0 where the timeline has none. Of two, the second's.
        dropped: Arrows that could not be shown, because they would go back in time.

    Raises:
        ScheduleError: The schedule is not valid.
        ValueError: Neither one nor two timelines.
    """

    def __init__(
        self,
        timelines: Labelled,
        schedule: Schedule | None = None,
        costs: Costs | None = None,
        *,
        more: Callable[[slice], list[Arg]] | None = None,
        recorded: Sequence[Recorded] = (),
    ) -> None:
        if not 1 <= len(timelines) <= 2:
            raise ValueError(f"one or two timelines can be shown together, not {len(timelines)}")
        self._labels = [label for label, _ in timelines]
        self._more, self._recorded = more, recorded
        self._timelines = [_forward_only(timeline) for _, timeline in timelines]
        # By how much each timeline's clock is put later; a shifted copy of a large one would be dear.
        shifts = [-timeline.span[0] if len(timelines) > 1 else 0 for timeline in self._timelines]
        zero = min(
            (_first_time(of) + shift for of, shift in zip(self._timelines, shifts, strict=True) if len(of)), default=0
        )
        self._shifts = [shift - zero for shift in shifts]
        last = self._timelines[-1]
        self.epoch = last.epoch - self._shifts[-1] if last.epoch else 0
        self._with_stage = any(several_stages(timeline) for timeline in self._timelines)
        self._marks: list[list[Marks]] = []
        for source, timeline in enumerate(self._timelines):
            marks = [phase_marks(timeline), waits(timeline, with_stage=self._with_stage)]
            if schedule is not None:
                marks += idle_marks(schedule, timeline, None if source else costs)
            self._marks.append(marks)
        self._declare_processes()
        self._declare_tracks()
        self._counterparts: Sequence[Counterparts | None] = [None]
        if len(self._timelines) == 2:
            self._counterparts = counterparts(*self._timelines)
        self._draw_arrows()
        # Rank by rank: in this order the Perfetto UI pins them.
        self.counters = tuple(sorted(self._counters(), key=lambda counter: counter.pid))

    def about(self) -> dict[str, object]:
        """What a trace says of what it shows."""
        return {
            "epoch_ns": self.epoch,
            "timelines": [
                {"label": label, "ranks": timeline.ranks, "tiles": len(timeline), "makespan_ns": timeline.makespan}
                for label, timeline in zip(self._labels, self._timelines, strict=True)
            ],
            "flows": self.arrows,
            "flows_dropped": self.dropped,
        }

    def __len__(self) -> int:
        """Slices."""
        marks = sum(len(marks) for several in self._marks for marks in several)
        return sum(map(len, self._timelines)) + marks + sum(map(len, self._recorded))

    def _declare_processes(self) -> None:
        self._ranks = max(timeline.ranks for timeline in self._timelines)
        self._replicas = max(timeline.replicas for timeline in self._timelines)
        processes = []
        for process in range(self._ranks * self._replicas):
            name = self._rank_name(process)
            for source, label in enumerate(self._labels):
                shown = name if len(self._labels) == 1 else f"{name} {label}"
                processes.append(Process(self._pid(process, source), shown, label))
        self.whole = Process(len(processes) + 1, "all ranks")
        self.processes = (*processes, self.whole, *self._recorded_processes())

    def _recorded_processes(self) -> Iterator[Process]:
        last = len(self._labels) - 1
        for pid, of in enumerate(self._recorded, start=self.whole.pid + 1):
            name = self._rank_name(of.process)
            yield Process(pid, f"{name} recorded", within=(self._pid(of.process, last), "recorded"))

    def _rank_name(self, process: int) -> str:
        replica, rank = divmod(process, self._ranks)
        return f"rank {rank}" if self._replicas == 1 else f"replica {replica} rank {rank}"

    def _pid(self, process: AnyInt, source: int) -> AnyInt:
        return process * len(self._labels) + source + 1

    def _declare_tracks(self) -> None:
        """Spreads tiles that overlap over further tracks, and numbers the tracks in use."""
        self._sub_of_tiles: list[IntArray | None] = []
        self._sub_of_marks: list[list[IntArray | None]] = []
        used = []
        for source, timeline in enumerate(self._timelines):
            group = self._group_of_tiles(source, slice(None))
            sub = overlapping_sub_lanes(group, timeline.start, timeline.end)
            self._sub_of_tiles.append(sub)
            used.append(np.unique(_on(group, sub)))
            self._sub_of_marks.append([])
            for marks in self._marks[source]:
                group = self._group_of_marks(source, marks, slice(None))
                sub = overlapping_sub_lanes(group, marks.start, marks.end)
                self._sub_of_marks[-1].append(sub)
                used.append(np.unique(_on(group, sub)))
        self._declared = np.unique(np.concatenate(used))
        tracks = []
        for tid, of in enumerate(self._declared.tolist(), start=len(self.processes) + 1):
            group, sub = divmod(of, _MOST_SUB_LANES)
            pid, lane = divmod(group, len(LANES))
            # Lanes that are of use without their rank around them, e.g. pinned to the top, carry its name.
            alone = LANES[lane] in ("compute", "all-to-all")
            name = f"{self.processes[pid - 1].name} {LANES[lane]}" if alone else LANES[lane]
            tracks.append(Track(tid, pid, f"{name} {sub + 1}" if sub else name))
        for number, of_rank in enumerate(self._recorded):
            first = tracks[-1].tid + 1 if tracks else len(self.processes) + 1
            pid = self.whole.pid + 1 + number
            tracks += [Track(tid, pid, name) for tid, name in enumerate(of_rank.lanes, start=first)]
        self.tracks = tuple(tracks)

    def _group_of_tiles(self, source: int, rows: slice) -> IntArray:
        """The lane of a process, as one number, in which each of some tiles lies."""
        timeline = self._timelines[source]
        process = timeline.replica[rows] * self._ranks + timeline.rank[rows]
        group: IntArray = self._pid(process, source) * len(LANES) + _LANE_OF_TILE[timeline.lane[rows]]
        return group

    def _group_of_marks(self, source: int, marks: Marks, rows: slice) -> IntArray:
        replica, rank = np.divmod(marks.process[rows], self._timelines[source].ranks)
        return self._pid(replica * self._ranks + rank, source) * len(LANES) + LANES.index(marks.lane)

    def arrow_kind(self, arrow: IntArray) -> IntArray:
        """Of each of some arrows the index of its name in `ARROWS`; shape of `arrow`."""
        return self._kinds[np.searchsorted(self._last_of_kind, arrow, side="right")]

    def _draw_arrows(self) -> None:
        """Arrows between tiles, which are numbered over all timelines."""
        self._first_of = np.cumsum([0, *map(len, self._timelines)]).tolist()
        start, end = (
            _one([_plus(getattr(of, name), shift) for of, shift in zip(self._timelines, self._shifts, strict=True)])
            for name in ("start", "end")
        )
        kinds: list[tuple[int, Arrows]] = []
        for kind, needed, step in ((0, (Kind.F,), 1), (1, (Kind.I, Kind.B), -1)):
            for first, timeline in zip(self._first_of, self._timelines, strict=False):
                producer, consumer = dependencies(timeline, needed, step)
                kinds.append((kind, place(start, end, producer + first, consumer + first)))
        if (of_ideal := self._counterparts[0]) is not None:
            ideal = np.flatnonzero(of_ideal.row != NO_TILE)
            measured = of_ideal.row[ideal] + self._first_of[1]
            kinds.append((2, place_either_way(start, end, ideal, measured)))
        sizes = [arrows.leave.size for _, arrows in kinds]
        self._last_of_kind = np.cumsum(sizes)
        self._kinds = np.array([kind for kind, _ in kinds], dtype=np.int64)
        self.arrows = sum(sizes)
        every = Arrows.joined([arrows for _, arrows in kinds])
        self.dropped = every.dropped
        self._leaving = EndsBySlice(every.producer, every.leave)
        self._arriving = EndsBySlice(every.consumer, every.arrive)

    def _counters(self) -> Iterator[CounterTrack]:
        for source, (timeline, shift) in enumerate(zip(self._timelines, self._shifts, strict=True)):
            label = f" {self._labels[source]}" if len(self._labels) > 1 else ""
            yield CounterTrack(self.whole.pid, f"idle{label}", "ranks", _later(idle_series(timeline), shift))
            held = {
                name: in_flight_series(timeline, release)
                for release, name in ((Kind.I, "in flight, freed at I"), (Kind.W, "in flight, freed at W"))
            }
            has_all_to_alls = bool((timeline.lane == Lane.ALL_TO_ALL).any())
            exposed = exposed_series(timeline) if has_all_to_alls else None
            for process in range(timeline.ranks * timeline.replicas):
                replica, rank = divmod(process, timeline.ranks)
                pid = self._pid(replica * self._ranks + rank, source)
                if exposed is not None and exposed[process].time.size:
                    yield CounterTrack(pid, "exposed all-to-all", "all-to-alls", _later(exposed[process], shift))
                for name, of in held.items():
                    if of[process].time.size:
                        yield CounterTrack(pid, name, "chunks", _from_zero(_later(of[process], shift)))
        if (measured := self._counterparts[-1]) is not None:
            yield from self._drifts(measured)

    def _drifts(self, of: Counterparts) -> Iterator[CounterTrack]:
        """By how much each rank of the second timeline is later than the first's, at the end of each action."""
        ideal, measured = self._timelines
        found = []
        for process in range(measured.ranks * measured.replicas):
            replica, rank = divmod(process, measured.ranks)
            first, last = measured.rows_of(replica, rank)
            rows = first + np.flatnonzero(of.same[first:last] & (measured.lane[first:last] == Lane.COMPUTE))
            ends = measured.end[rows] + self._shifts[1], ideal.end[of.row[rows]] + self._shifts[0]
            found.append((self._pid(replica * self._ranks + rank, 1), drift_series(*ends)))
        # In one unit, so that ranks can be compared, and not in ns: the Perfetto UI would make "250M ns" of 250 ms.
        most = max((int(np.abs(drift.value).max(initial=0)) for _, drift in found), default=0)
        unit, per = ("ms", 1_000_000) if most >= 1_000_000 else ("µs", 1_000)
        for pid, drift in found:
            if drift.time.size:
                yield CounterTrack(pid, "drift", unit, drift, per)

    def blocks(self) -> Iterator[Slices]:
        """All slices, some at a time."""
        for source, timeline in enumerate(self._timelines):
            for first in range(0, len(timeline), _ROWS):
                yield self._tiles(source, first, min(first + _ROWS, len(timeline)))
            for number, marks in enumerate(self._marks[source]):
                for first in range(0, len(marks), _ROWS):
                    yield self._marked(source, number, slice(first, min(first + _ROWS, len(marks))))
        track = self._declared.size
        for of_rank in self._recorded:
            yield from of_rank.blocks(track, self._shifts[-1])
            track += len(of_rank.lanes)

    def _tiles(self, source: int, first: int, last: int) -> Slices:
        timeline, shift, rows = self._timelines[source], self._shifts[source], slice(first, last)
        code, partner = timeline.code[rows], timeline.partner[rows]
        args = tile_args(timeline, rows, shift)
        if (of := self._counterparts[source]) is not None:
            args += self._against(source, rows, of)
        if self._more is not None and source == len(self._timelines) - 1:
            args += self._more(rows)
        before = self._first_of[source]
        return Slices(
            self._track(self._group_of_tiles(source, rows), self._sub_of_tiles[source], rows),
            _LANE_OF_TILE[timeline.lane[rows]],
            tile_name(code, partner, with_stage=self._with_stage),
            args,
            timeline.start[rows] + shift,
            timeline.end[rows] + shift,
            code_microbatch(code) + 1,
            self._leaving.of(first + before, last + before),
            self._arriving.of(first + before, last + before),
        )

    def _against(self, source: int, rows: slice, of: Counterparts) -> list[Arg]:
        """What tiles say of their counterparts."""
        timeline, other = self._timelines[source], self._timelines[1 - source]
        has, same = of.row[rows] != NO_TILE, of.same[rows]
        if not has.any():
            return []
        at, theirs = np.where(has, of.row[rows], 0), self._labels[1 - source]
        start, end = other.start[at] + self._shifts[1 - source], other.end[at] + self._shifts[1 - source]
        args = [Arg(f"{theirs}_start_ns", start, has), Arg(f"{theirs}_duration_ns", end - start, has)]
        if source and same.any():
            args.append(Arg("slip_ns", timeline.end[rows] + self._shifts[source] - end, same))
        return args

    def _marked(self, source: int, number: int, rows: slice) -> Slices:
        marks, shift = self._marks[source][number], self._shifts[source]
        return Slices(
            self._track(self._group_of_marks(source, marks, rows), self._sub_of_marks[source][number], rows),
            np.full(rows.stop - rows.start, LANES.index(marks.lane), dtype=np.int64),
            marks.name(rows),
            marks.args(rows, shift),
            marks.start[rows] + shift,
            marks.end[rows] + shift,
            marks.colour[rows],
            NO_ENDS,
            NO_ENDS,
        )

    def _track(self, group: IntArray, sub: IntArray | None, rows: slice) -> IntArray:
        return np.searchsorted(self._declared, _on(group, None if sub is None else sub[rows]))


def _on(group: IntArray, sub: IntArray | None) -> IntArray:
    return group * _MOST_SUB_LANES + (0 if sub is None else sub)


def _one(columns: Sequence[IntArray]) -> IntArray:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _plus(column: IntArray, by: int) -> IntArray:
    return column + by if by else column


def _later(series: Series, by: int) -> Series:
    return Series(series.time + by, series.value)


def _from_zero(series: Series) -> Series:
    """With a 0 where the trace begins: the Perfetto UI pins ranks in the order in which they are heard of, and a rank
    that waits before the first action would come before those that do not."""
    if series.time[0] == 0:
        return series
    return Series(np.concatenate([[0], series.time]), np.concatenate([[0], series.value]))


def _first_time(timeline: Timeline) -> int:
    """The earliest time that is shown of a timeline."""
    waited = timeline.waited[timeline.waited != UNKNOWN]
    return min(int(timeline.start.min()), int(waited.min(initial=np.iinfo(np.int64).max)))


def _forward_only(timeline: Timeline) -> Timeline:
    """The same tiles, none of which ends before it starts: nothing else can be shown."""
    if (timeline.end >= timeline.start).all():
        return timeline
    return replace(timeline, end=np.maximum(timeline.end, timeline.start))
