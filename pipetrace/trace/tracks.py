"""What a written trace shows: processes, tracks, slices, arrows and counters.

Every writer writes from this one description, so that the formats cannot drift apart. A process is a rank of one
timeline; its tracks are the lanes, and where tiles of a lane overlap (transfers under way together) as many more as it
takes, because viewers drop slices that overlap on a track. Times are ns from a zero before which nothing lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pipetrace.action import IntArray, Kind
from pipetrace.metrics import Series, halves
from pipetrace.timeline import UNKNOWN, Lane, Timeline
from pipetrace.trace.counters import drift_series, idle_series, in_flight_series
from pipetrace.trace.flows import Arrows, dependencies, place, place_either_way
from pipetrace.trace.lanes import sub_lanes
from pipetrace.trace.naming import Naming, several_stages

LANES = ("compute", "all-to-all", "send", "recv", "waits")
"""Names of tracks; the first four in the order of `Lane`."""
CATEGORIES = ("compute", "all-to-all", "send", "recv", "wait")
_WAITS = 4
_MOST_SUB_LANES = 1 << 30

Labelled = Sequence[tuple[str, Timeline]]


@dataclass(frozen=True, slots=True)
class Process:
    """A group of tracks. `pid` is unique and rises in the order in which to show them; `label` is its timeline's."""

    pid: int
    name: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Track:
    """A line of slices that do not overlap. `tid` is unique over all processes, and no process's `pid`."""

    tid: int
    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class CounterTrack:
    """A value over time; `unit` is "ns", or what is counted."""

    pid: int
    name: str
    unit: str
    series: Series


class ArrowEnd(NamedTuple):
    """One end of an arrow, inside its slice; both ends have the same id, name and category."""

    id: int
    name: str
    category: str
    at: int


class Slice(NamedTuple):
    """A tile, or a wait. `leaves` and `arrives` are the ends of arrows in it."""

    pid: int
    tid: int
    name: str
    category: str
    start: int
    end: int
    args: Mapping[str, int | str]
    leaves: Sequence[ArrowEnd]
    arrives: Sequence[ArrowEnd]


class Tracks:
    """The description of one timeline, or of two with the second held against the first.

    Two timelines are put on a common zero, the first F, B, I or W of each, and shown rank by rank.

    Args:
        timelines: One or two, with what to call them, e.g. ("ideal", …), ("measured", …).

    Attributes:
        processes, tracks, counters: To be declared before the slices.
        arrows: How many there are.
        epoch: Unix time in ns of zero; 0 where the timeline has none. Of two, the second's.
        dropped: Arrows that could not be shown, because they would go back in time.

    Raises:
        ValueError: Neither one nor two timelines.
    """

    def __init__(self, timelines: Sequence[tuple[str, Timeline]]) -> None:
        if not 1 <= len(timelines) <= 2:
            raise ValueError(f"one or two timelines can be shown together, not {len(timelines)}")
        self._labels = [label for label, _ in timelines]
        common = [timeline.from_first_action() if len(timelines) > 1 else timeline for _, timeline in timelines]
        zero = min((_first_time(timeline) for timeline in common if len(timeline)), default=0)
        self._timelines = [_forward_only(timeline.shifted(-zero)) for timeline in common]
        self.epoch = self._timelines[-1].epoch
        self._declare_processes()
        self._lay_out()
        self._match()
        self._draw_arrows()
        self.counters = tuple(self._counters())

    def __len__(self) -> int:
        """Slices."""
        return self._start.size

    def _declare_processes(self) -> None:
        self._ranks = max(timeline.ranks for timeline in self._timelines)
        replicas = max(timeline.replicas for timeline in self._timelines)
        processes = []
        for process in range(self._ranks * replicas):
            replica, rank = divmod(process, self._ranks)
            name = f"rank {rank}" if replicas == 1 else f"replica {replica} rank {rank}"
            for source, label in enumerate(self._labels):
                shown = name if len(self._labels) == 1 else f"{name} {label}"
                processes.append(Process(self._pid(process, source), shown, label))
        whole = Process(len(processes) + 1, "all ranks")
        self.processes = (*processes, whole)

    def _pid(self, process: int, source: int) -> int:
        return process * len(self._labels) + source + 1

    def _lay_out(self) -> None:
        """Fills the columns of slices, in the order of tracks, then time."""
        parts = []
        for number, timeline in enumerate(self._timelines):
            rows = np.arange(len(timeline), dtype=np.int64)
            waits = rows[(timeline.waited != UNKNOWN) & (timeline.waited < timeline.end)]
            of_row = np.concatenate([rows, waits])
            begins = np.concatenate([timeline.start, timeline.waited[waits]])
            process = timeline.replica[of_row] * self._ranks + timeline.rank[of_row]
            parts.append(
                (
                    np.full(of_row.size, number, dtype=np.int64),
                    of_row,
                    process * len(self._labels) + number + 1,
                    np.concatenate([timeline.lane, np.full(waits.size, _WAITS, dtype=np.int64)]),
                    begins,
                    timeline.end[of_row],
                )
            )
        source, row, pid, lane, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))

        # A tile of no length counts as one of 1 ns: viewers would nest it in what starts with it, and bind that one's
        # arrows to it. The longer goes first, so that it keeps its track.
        shown_end = np.maximum(end, start + 1)
        order = np.lexsort((-shown_end, start, lane, pid))
        group = (pid * len(LANES) + lane)[order]
        on = group * _MOST_SUB_LANES + sub_lanes(group, start[order], shown_end[order])
        order = order[np.argsort(on, kind="stable")]
        self._source, self._row, self._pid_of, self._lane = source[order], row[order], pid[order], lane[order]
        self._start, self._end = start[order], end[order]
        declared, self._track = np.unique(np.sort(on), return_inverse=True)
        tracks = []
        for tid, of in enumerate(declared.tolist(), start=len(self.processes) + 1):
            of_group, sub = divmod(of, _MOST_SUB_LANES)
            of_pid, of_lane = divmod(of_group, len(LANES))
            tracks.append(Track(tid, of_pid, f"{LANES[of_lane]} {sub + 1}" if sub else LANES[of_lane]))
        self.tracks = tuple(tracks)
        # Where each timeline's rows went, for arrows between them.
        self._slice_of = []
        for number, timeline in enumerate(self._timelines):
            where = np.zeros(len(timeline), dtype=np.int64)
            mine = np.flatnonzero((self._source == number) & (self._lane != _WAITS))
            where[self._row[mine]] = mine
            self._slice_of.append(where)

    def _match(self) -> None:
        """For each slice its counterpart in the other timeline, or -1; matched by identity, pairs also by halves."""
        self._counterpart = np.full(len(self), -1, dtype=np.int64)
        self._same = np.zeros(len(self), dtype=np.bool_)
        if len(self._timelines) < 2:
            return
        ideal, measured = self._timelines
        known: dict[tuple[int, int], int] = {}
        for code, row in zip(*(column.tolist() for column in halves(ideal)), strict=True):
            known[int(ideal.replica[row]), code] = row
        # Backwards, so that of a pair the forward half, which comes first, has the last word.
        for code, row in reversed(list(zip(*(column.tolist() for column in halves(measured)), strict=True))):
            other = known.get((int(measured.replica[row]), code))
            if other is not None:
                here, there = self._slice_of[1][row], self._slice_of[0][other]
                self._counterpart[here], self._counterpart[there] = there, here
                same = bool(measured.code[row] == ideal.code[other] and measured.partner[row] == ideal.partner[other])
                self._same[here] = self._same[there] = same

    def _draw_arrows(self) -> None:
        kinds: list[tuple[str, Arrows]] = []
        for category, needed, step in (("forward", (Kind.F,), 1), ("backward", (Kind.I, Kind.B), -1)):
            for index, timeline in enumerate(self._timelines):
                producer, consumer = dependencies(timeline, needed, step)
                of = self._slice_of[index]
                kinds.append((category, place(self._start, self._end, of[producer], of[consumer])))
        ideal = np.flatnonzero((self._counterpart >= 0) & (self._source == 0))
        kinds.append(("counterpart", place_either_way(self._start, self._end, ideal, self._counterpart[ideal])))
        self.dropped = sum(arrows.dropped for _, arrows in kinds)
        self._arrow_category = [category for category, arrows in kinds for _ in range(arrows.leave.size)]
        leave, arrive, producer, consumer = (
            np.concatenate([getattr(arrows, name) for _, arrows in kinds])
            for name in ("leave", "arrive", "producer", "consumer")
        )
        self._leaving, self._arriving = _Ends(producer, leave, len(self)), _Ends(consumer, arrive, len(self))
        self.arrows = len(self._arrow_category)

    def _counters(self) -> Iterator[CounterTrack]:
        whole = self.processes[-1].pid
        for source, timeline in enumerate(self._timelines):
            label = f" {self._labels[source]}" if len(self._labels) > 1 else ""
            yield CounterTrack(whole, f"idle{label}", "ranks", idle_series(timeline))
            compute = self._same & (self._source == source) & (self._lane == Lane.COMPUTE)
            held = {
                name: [
                    of for replica in range(timeline.replicas) for of in in_flight_series(timeline, release, replica)
                ]
                for release, name in ((Kind.I, "in flight, freed at I"), (Kind.W, "in flight, freed at W"))
            }
            for process in range(timeline.ranks * timeline.replicas):
                replica, rank = divmod(process, timeline.ranks)
                pid = self._pid(replica * self._ranks + rank, source)
                for name, of in held.items():
                    if of[process].time.size:
                        yield CounterTrack(pid, name, "chunks", of[process])
                drifting = np.flatnonzero(compute & (self._pid_of == pid)) if source else np.zeros(0, dtype=np.int64)
                if drifting.size:
                    ideal_end = self._end[self._counterpart[drifting]]
                    yield CounterTrack(pid, "drift", "ns", drift_series(self._end[drifting], ideal_end))

    def slices(self) -> Iterator[Slice]:
        """All slices, track by track, each in the order of time; made one at a time, so that many are cheap."""
        with_stage = any(several_stages(timeline) for timeline in self._timelines)
        namings = [Naming(timeline, with_stage=with_stage) for timeline in self._timelines]
        columns = (self._source, self._row, self._track, self._lane, self._start, self._end, self._counterpart)
        for index, (source, row, track, lane, start, end, other) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            name, args = namings[source].name(row), namings[source].args(row)
            if lane == _WAITS:
                name, args["duration_ns"] = f"WAIT {name}", end - start
            elif other >= 0:
                theirs = self._labels[1 - source]
                args[f"{theirs}_start_ns"] = int(self._start[other])
                args[f"{theirs}_duration_ns"] = int(self._end[other] - self._start[other])
                if source and self._same[index]:
                    args["slip_ns"] = end - int(self._end[other])
            on = self.tracks[track]
            leaves, arrives = self._ends(self._leaving, index), self._ends(self._arriving, index)
            yield Slice(on.pid, on.tid, name, CATEGORIES[lane], start, end, args, leaves, arrives)

    def _ends(self, ends: _Ends, index: int) -> Sequence[ArrowEnd]:
        found = []
        for arrow, at in ends.of(index):
            category = self._arrow_category[arrow]
            found.append(ArrowEnd(arrow + 1, category, category, at))
        return found


class _Ends:
    """The ends of arrows by the slice in which they lie."""

    def __init__(self, at_slice: IntArray, time: IntArray, slices: int) -> None:
        order = np.argsort(at_slice, kind="stable")
        self._arrow, self._time = order.tolist(), time[order].tolist()
        self._first = np.searchsorted(at_slice[order], np.arange(slices + 1)).tolist()

    def of(self, index: int) -> list[tuple[int, int]]:
        """(arrow, time) of the ends in a slice."""
        mine = slice(self._first[index], self._first[index + 1])
        return list(zip(self._arrow[mine], self._time[mine], strict=True))


def _first_time(timeline: Timeline) -> int:
    """The earliest time that is shown of a timeline."""
    waited = timeline.waited[timeline.waited != UNKNOWN]
    return min(int(timeline.start.min()), int(waited.min(initial=np.iinfo(np.int64).max)))


def _forward_only(timeline: Timeline) -> Timeline:
    """The same tiles, none of which ends before it starts: nothing else can be shown."""
    return replace(timeline, end=np.maximum(timeline.end, timeline.start))
