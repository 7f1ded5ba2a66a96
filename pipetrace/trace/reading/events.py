"""The events of a trace in columns: a million of them take some 40 MB, and are chosen by arrays instead of loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec
import numpy as np

from pipetrace.action import BoolArray, IntArray

# A start is within 32 years before and 126 years after the base, which itself ends in 2096, and lasts 3 years at most:
# what is beyond is a damaged number, and differences of what is within fit 64 bits.
_LEAST_MICROS, _MOST_MICROS, _LONGEST_MICROS = -(10**15), 4 * 10**15, 10**14
MOST_BASE = 4 * 10**18
"""The latest Unix ns to which a file's times may be added."""
EARLIEST, LONGEST = 1000 * _LEAST_MICROS, 1000 * _LONGEST_MICROS
LATEST = MOST_BASE + 1000 * _MOST_MICROS + LONGEST
"""Between these Unix ns lie all times."""
_EXACT_BELOW = 2.0**43
"""µs below which a double tells the three decimals that traces have; torch's base keeps its times below."""

NONE = -1
"""Stands in a column where an event says nothing."""

NAMELESS = "complete events without a name or a start were left out"
NO_PHASE = "events of no known kind were left out"
ENDLESS = "complete events without a duration were taken to have none"
STRING_TIMES = "times in strings were read as numbers"
NEGATIVE = "events that end before they begin were taken to have no length"


AnyInts = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
"""Integers of any width: what repeats in every event is kept narrow."""


class Args(msgspec.Struct, gc=False):
    """What is used of an event's arguments, as torch's profiler names them."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    source: Any = msgspec.field(default=None, name="Src Rank")
    destination: Any = msgspec.field(default=None, name="Dst Rank")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    inputs: Any = msgspec.field(default=None, name="Concrete Inputs")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    name: Any = None
    labels: Any = None


class Event(msgspec.Struct, gc=False):
    """An event as far as it is used; Any, as files put text, null and more where numbers should stand."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: Args | None = None


@dataclass(frozen=True, eq=False)
class Events:
    """Complete events with a name and a start, in the order of the file.

    Args:
        name, category, thread: Places in the tables below; shape (n,).
        start, end: Unix ns; shape (n,).
        correlation, stream, device: Of launches and kernels, else `NONE`; shape (n,).
        forward: 1 for operations that autograd will differentiate, as it numbered them, else 0; shape (n,).
        names, categories: What stands in the file.
        threads: (pid, tid) as they stand in the file.
        details: Arguments of the events that are communication, by row.
        memory: (device, Unix ns, bytes allocated) of each change of memory that was recorded.
        process_names: What a process is called, by pid.
        thread_names: What a thread is called, by (pid, tid).
    """

    name: IntArray
    category: IntArray
    thread: IntArray
    start: IntArray
    end: IntArray
    correlation: IntArray
    stream: IntArray
    device: IntArray
    forward: IntArray
    names: Sequence[str]
    categories: Sequence[str]
    threads: Sequence[tuple[str, str]]
    details: dict[int, Args] = field(default_factory=dict)
    memory: Sequence[tuple[str, int, int]] = ()
    process_names: dict[str, str] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.name.size

    def called(self, names: Iterable[str]) -> BoolArray:
        """Which events have one of these names; shape (n,)."""
        wanted = set(names)
        return self.of_names([name in wanted for name in self.names])

    def of_names(self, chosen: Sequence[bool]) -> BoolArray:
        """Which events' names are chosen, an entry a name; shape (n,)."""
        return _pick(chosen, self.name)

    def in_categories(self, categories: Iterable[str]) -> BoolArray:
        """Which events are of one of these categories; shape (n,)."""
        wanted = set(categories)
        return _pick([category in wanted for category in self.categories], self.category)

    def on_threads(self, chosen: Sequence[bool]) -> BoolArray:
        """Which events' threads are chosen, an entry a thread; shape (n,)."""
        return _pick(chosen, self.thread)

    def where(self, mask: BoolArray) -> Events:
        """The events that a mask of shape (n,) picks."""
        rows = np.flatnonzero(mask)
        place = {int(row): at for at, row in enumerate(rows)} if self.details else {}
        return Events(
            **{column: getattr(self, column)[rows] for column in _COLUMNS},
            names=self.names,
            categories=self.categories,
            threads=self.threads,
            details={place[row]: args for row, args in self.details.items() if row in place},
            memory=self.memory,
            process_names=self.process_names,
            thread_names=self.thread_names,
        )


_TIMED = ("B", "E", "i")
_PHASES = frozenset("BEXIiCbneSTpFstfPNODMVvRrcaL(),")  # of Chrome's trace format
_COLUMNS = ("name", "category", "thread", "start", "end", "correlation", "stream", "device", "forward")


def _pick(chosen: Sequence[bool], column: IntArray) -> BoolArray:
    table = np.array(chosen, dtype=np.bool_)
    if not table.any():
        return np.zeros(column.size, dtype=np.bool_)
    picked: BoolArray = table[column]
    return picked


class Collector:
    """Takes events by the thousand and makes columns of them.

    Args:
        base: Unix ns to which times are added; may be set until `finish`, as it can stand behind the events.
    """

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.mended: Counter[str] = Counter()
        self.lost_times = 0
        self.unclosed = 0
        self._tables: tuple[dict[str, int], dict[str, int], dict[tuple[Any, Any], int]] = ({}, {}, {})
        self._columns: dict[str, list[AnyInts]] = defaultdict(list)
        self._count = 0
        self._details: dict[int, Args] = {}
        self._memory: list[tuple[str, int, int]] = []
        self._open: dict[tuple[str, str], list[tuple[Event, int]]] = defaultdict(list)
        self._process_names: dict[str, str] = {}
        self._thread_names: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, events: Sequence[Event]) -> bool:
        """Takes events of any kind; those that are none of ours are left.

        Returns:
            False, with nothing taken, where times stand in floats that have lost their last decimals.
        """
        complete = [e for e in events if e.ph == "X" and isinstance(e.name, str) and e.ts is not None]
        others = [e for e in events if e.ph != "X"] if len(complete) < len(events) else []
        starts, durations = [e.ts for e in complete], [0 if e.dur is None else e.dur for e in complete]
        if any(map(_has_lost_digits, (starts, durations, [e.ts for e in others if e.ph in _TIMED]))):
            return False
        if len(complete) + len(others) < len(events):
            self.mended[NAMELESS] += len(events) - len(complete) - len(others)
        for event in others:
            if not isinstance(event.ph, str) or event.ph not in _PHASES:
                self.mended[NO_PHASE] += 1
            self._add_other(event)
        if endless := sum(e.dur is None for e in complete):
            self.mended[ENDLESS] += endless
        self._add_complete(complete, starts, durations)
        return True

    def _add_complete(self, events: list[Event], starts: list[Any], durations: list[Any]) -> None:
        if not events:
            return
        start, fine = self._times(starts, _LEAST_MICROS, _MOST_MICROS)
        duration, fine_too = self._times(durations, -_LONGEST_MICROS, _LONGEST_MICROS)
        if negative := int((duration < 0).sum()):
            self.mended[NEGATIVE] += negative
            duration = np.maximum(duration, 0)
        usable = fine & fine_too
        if not usable.all():
            self.lost_times += int((~usable).sum())
            events = [event for event, use in zip(events, usable.tolist(), strict=True) if use]
            start, duration = start[usable], duration[usable]
        self._append(events, start, start + duration)

    def _append(self, events: list[Event], start: IntArray, end: IntArray) -> None:
        names, categories, threads = self._tables
        new: dict[str, AnyInts] = {
            "name": np.array([names.setdefault(e.name, len(names)) for e in events], dtype=np.int32),
            "category": np.array([categories.setdefault(_text(e.cat), len(categories)) for e in events], np.int32),
            "thread": np.array([threads.setdefault(_hashable(e), len(threads)) for e in events], dtype=np.int32),
            "start": start,
            "end": end,
        }
        of_device = [(i, e.args) for i, e in enumerate(events) if e.args is not None and e.args.correlation is not None]
        for column in ("correlation", "stream", "device"):
            width = np.int64 if column == "correlation" else np.int32
            values: AnyInts = np.full(len(events), NONE, dtype=width)
            if of_device:
                values[[i for i, _ in of_device]] = [_count(getattr(args, column)) for _, args in of_device]
            new[column] = values
        forward: AnyInts = np.zeros(len(events), dtype=np.int8)
        numbered = [i for i, e in enumerate(events) if e.args is not None and e.args.sequence is not None]
        if numbered:
            forward[numbered] = [_runs_forward(events[i].args) for i in numbered]
        new["forward"] = forward
        for i, event in enumerate(events):
            if event.args is not None and (event.args.collective is not None or event.args.inputs is not None):
                self._details[self._count + i] = event.args
        for name, values in new.items():
            self._columns[name].append(values)
        self._count += len(events)

    def _times(self, values: list[Any], least: int, most: int) -> tuple[IntArray, BoolArray]:
        """µs as ns, and which are times between two; exact, as three decimals are below `_EXACT_BELOW`."""
        kinds = set(map(type, values))
        if kinds <= {float, int}:
            micros = np.array(values, dtype=np.float64)
            fine = (micros >= least) & (micros <= most)  # False for NaN
            micros = np.where(fine, micros, 0)
            whole = np.floor(micros)
            return whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64), fine
        if str in kinds:
            self.mended[STRING_TIMES] += sum(isinstance(value, str) for value in values)
        exact = [_exact(value, least, most) for value in values]
        return (
            np.array([0 if time is None else time for time in exact], dtype=np.int64),
            np.array([time is not None for time in exact], dtype=np.bool_),
        )

    def _add_other(self, event: Event) -> None:
        if event.ph == "M" and event.args is not None:
            pid, tid = _text(event.pid), _text(event.tid)
            if event.name == "thread_name" and isinstance(event.args.name, str):
                self._thread_names[pid, tid] = event.args.name
            elif event.name == "process_name" and isinstance(event.args.name, str):
                self._process_names[pid] = f"{event.args.name} {self._process_names.get(pid, '')}".strip()
            elif event.name == "process_labels" and isinstance(event.args.labels, str):
                self._process_names[pid] = f"{self._process_names.get(pid, '')} {event.args.labels}".strip()
        elif event.ph == "i" and event.name == "[memory]" and event.args is not None:
            time, bytes_ = _exact(event.ts), _count(event.args.allocated)
            if time is not None and bytes_ != NONE:
                kind = "cpu" if _count(event.args.device_type) == 0 else "gpu"
                self._memory.append((f"{kind} {_count(event.args.device_id)}" if kind == "gpu" else kind, time, bytes_))
        elif event.ph in ("B", "E"):
            self._add_half(event)

    def _add_half(self, event: Event) -> None:
        """The two halves of a range, as NVTX-like tools write them: the last that was opened is closed first."""
        time = _exact(event.ts)
        stack = self._open[_text(event.pid), _text(event.tid)]
        if time is None:
            self.lost_times += 1
        elif event.ph == "B":
            stack.append((event, time))
        elif stack:
            begun, start = stack.pop()
            if time - start > LONGEST:
                self.lost_times += 1
            elif isinstance(begun.name, str):
                if time < start:
                    self.mended[NEGATIVE] += 1
                ends = np.array([max(start, time)], dtype=np.int64)
                self._append([begun], np.array([start], dtype=np.int64), ends)
            else:
                self.mended[NAMELESS] += 1
        else:
            self.unclosed += 1

    def finish(self) -> Events:
        """The columns; nothing can be added any more."""
        self.unclosed += sum(map(len, self._open.values()))
        columns: dict[str, AnyInts] = {}
        for name in _COLUMNS:
            columns[name] = np.concatenate(self._columns.pop(name, [np.zeros(0, dtype=np.int64)]))
        for name in ("start", "end"):
            columns[name] += self.base
        names, categories, _ = self._tables
        threads = self._merge_threads(columns)
        return Events(
            **columns,
            names=tuple(names),
            categories=tuple(categories),
            threads=threads,
            details=self._details,
            memory=[(device, time + self.base, bytes_) for device, time, bytes_ in self._memory],
            process_names=self._process_names,
            thread_names=self._thread_names,
        )

    def _merge_threads(self, columns: dict[str, AnyInts]) -> tuple[tuple[str, str], ...]:
        """The threads, those whose ids stood now as numbers and now as text made one."""
        merged: dict[tuple[str, str], int] = {}
        to = [merged.setdefault((_text(pid), _text(tid)), len(merged)) for pid, tid in self._tables[2]]
        if len(merged) < len(to):
            columns["thread"] = np.array(to, dtype=np.int32)[columns["thread"]]
        return tuple(merged)


def _runs_forward(args: Args | None) -> bool:
    """Whether a numbered operation is what will be differentiated; a derivative names the thread of its forward."""
    return args is not None and _count(args.forward_thread) in (0, NONE)


def _has_lost_digits(micros: list[Any]) -> bool:
    kinds = set(map(type, micros))
    if float not in kinds:
        return False
    if kinds <= {float, int}:
        times = np.abs(np.array(micros, dtype=np.float64))
        return bool(((times >= _EXACT_BELOW) & (times <= _MOST_MICROS)).any())
    return any(type(time) is float and _EXACT_BELOW <= abs(time) <= _MOST_MICROS for time in micros)


def _exact(value: Any, least: int = _LEAST_MICROS, most: int = _MOST_MICROS) -> int | None:
    """µs as ns, rounded to the nearest; None for what is no time between two."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        micros = Decimal(value.strip()) if isinstance(value, str) else Decimal(str(value))
    except (ArithmeticError, ValueError):
        return None
    # Not a number compares with nothing, so ask for it first.
    if not micros.is_finite() or not least <= micros <= most:
        return None
    return int((micros * 1000).to_integral_value(ROUND_HALF_EVEN))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:60]


def _hashable(event: Event) -> tuple[Any, Any]:
    pid, tid = event.pid, event.tid
    if type(pid) is int and type(tid) is int:
        return pid, tid
    return _text(pid), _text(tid)


def _count(value: Any) -> int:
    """A count from 0 below 2^62, as a number or its text; `NONE` for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 62 else NONE
