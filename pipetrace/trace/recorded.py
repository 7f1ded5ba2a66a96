"""What somebody's profiler recorded, as it stands in his files, below the tiles that were read from it.

Events of a thread lie within each other as its calls do, which viewers show. What crosses another (kernels that
overlap, ranges of several threads under one number) goes to a further track.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import IntArray
from pipetrace.trace.description import CATEGORIES, Slices
from pipetrace.trace.flows import NO_ENDS
from pipetrace.trace.naming import Arg
from pipetrace.trace.text import Choice

if TYPE_CHECKING:
    from pipetrace.timeline import Timeline
    from pipetrace.trace.load import TraceFile
    from pipetrace.trace.reading.events import Events
    from pipetrace.trace.torch_profiler import Recording

_ROWS = 1 << 14  # of a block
_MOST_BYTES = 1 << 23  # of the names of a block, were all as long as the longest


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The events of one rank's file that began in a stretch of time.

    Args:
        process: replica × ranks + rank.
        lanes: Names of the tracks.
        lane: In which each event lies; columns of shape (n,), sorted by lane, then time, the longer first.
        name, category: Places in the tables below.
        start, end: ns on the timeline's clock.
        names, categories: What stands in the file.
    """

    process: int
    lanes: tuple[str, ...]
    lane: IntArray
    name: IntArray
    category: IntArray
    start: IntArray
    end: IntArray
    names: tuple[str, ...]
    categories: tuple[str, ...]

    def __len__(self) -> int:
        return self.start.size

    def blocks(self, first_track: int, shift: int) -> Iterator[Slices]:
        """The events, some at a time.

        Args:
            first_track: Index of the first of `lanes` among all tracks.
            shift: Zero of the timeline on the trace's clock, ns.
        """
        longest = max((len(name) for name in self.names), default=0)
        at_once = max(1, min(_ROWS, _MOST_BYTES // (4 * longest + 1)))
        for first in range(0, len(self), at_once):
            rows = slice(first, min(first + at_once, len(self)))
            count = rows.stop - rows.start
            yield Slices(
                self.lane[rows] + first_track,
                np.full(count, CATEGORIES.index("recorded"), dtype=np.int64),
                [_choice(self.names, self.name[rows])],
                [
                    Arg("category", [_choice(self.categories, self.category[rows])]),
                    Arg("duration_ns", self.end[rows] - self.start[rows]),
                ],
                self.start[rows] + shift,
                self.end[rows] + shift,
                np.zeros(count, dtype=np.int64),
                NO_ENDS,
                NO_ENDS,
            )


def recorded_by_others(recording: Recording, timeline: Timeline) -> list[Recorded]:
    """What the files of a recording hold of one step, rank by rank.

    Args:
        recording: What was read, of one replica.
        timeline: The step, as in `recording.steps` or shifted.

    Raises:
        TraceError: A file went away or was changed since it was read.
    """
    from pipetrace.trace.load import load_file

    until = timeline.span[1]
    found, files = [], set()
    for of in recording.found_of(0):
        if of.file in files:  # one file of all ranks
            continue
        files.add(of.file)
        trace = _of_rank(load_file(of.file), of.rank)
        zero = timeline.epoch - recording.offsets.get(of.rank, 0)
        found.append(recorded(trace.events, of.rank, zero=zero, until=until))
    return [of for of in found if len(of)]


def _of_rank(traces: Sequence[TraceFile], rank: int) -> TraceFile:
    """The trace of a rank among those of one file."""
    return next((trace for trace in traces if str(trace.distributed.get("rank")) == str(rank)), traces[0])


def recorded(events: Events, process: int, *, zero: int, until: int) -> Recorded:
    """The events of one rank that begin between two times.

    Args:
        events: What was read of its file.
        process: replica × ranks + rank.
        zero: Zero of the timeline, as Unix time in ns on the clock of the file.
        until: ns on the timeline's clock; the stretch begins at 0.
    """
    start, end = events.start - zero, np.maximum(events.end, events.start) - zero
    chosen = np.flatnonzero((start >= 0) & (start <= until))
    start, end, thread = start[chosen], end[chosen], events.thread[chosen].astype(np.int64)
    order = np.lexsort((-end, start, thread))
    chosen, start, end, thread = chosen[order], start[order], end[order], thread[order]
    sub = _crossing(thread, start, end)
    used, lane = np.unique(thread * (int(sub.max(initial=0)) + 1) + sub, return_inverse=True)
    order = np.argsort(lane, kind="stable")
    names = []
    first = np.searchsorted(lane[order], np.arange(used.size))
    for of, row in zip(used.tolist(), chosen[order][first].tolist(), strict=True):
        number, below = divmod(of, int(sub.max(initial=0)) + 1)
        name = _thread_name(events, number, row)
        names.append(f"{name} ({below + 1})" if below else name)
    return Recorded(
        process,
        tuple(names),
        lane[order].astype(np.int64),
        events.name[chosen][order].astype(np.int64),
        events.category[chosen][order].astype(np.int64),
        start[order],
        end[order],
        tuple(events.names),
        tuple(events.categories),
    )


def _thread_name(events: Events, number: int, row: int) -> str:
    """What a thread, or the stream on which the event in a row ran, is called."""
    pid, tid = events.threads[number]
    if (stream := int(events.stream[row])) >= 0:
        return f"GPU {events.device[row]} stream {stream}" if events.device[row] >= 0 else f"stream {stream}"
    known = [events.process_names.get(pid), events.thread_names.get((pid, tid))]
    told = " ".join(name for name in known if name)
    return f"{told} ({pid} {tid})" if told else f"{pid} {tid}"


def _crossing(group: IntArray, start: IntArray, end: IntArray) -> IntArray:
    """Numbers events so that those of one group and number lie within each other or apart; shape (n,).

    They are sorted by group, then start, the longer first.
    """
    sub = np.zeros(group.size, dtype=np.int64)
    stacks: list[list[int]] = []
    before = -1
    for row, (of, begins, ends) in enumerate(zip(group.tolist(), start.tolist(), end.tolist(), strict=True)):
        if of != before:
            stacks, before = [], of
        number = 0
        while True:
            if number == len(stacks):
                stacks.append([])
            stack = stacks[number]
            while stack and stack[-1] <= begins:
                stack.pop()
            if not stack or ends <= stack[-1]:
                stack.append(ends)
                break
            number += 1
        sub[row] = number
    return sub


def _choice(words: tuple[str, ...], index: IntArray) -> Choice:
    """A choice among those words only that occur."""
    used, place = np.unique(index, return_inverse=True)
    return Choice([words[i] for i in used.tolist()], place)
