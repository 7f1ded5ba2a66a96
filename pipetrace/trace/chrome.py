"""Timelines as Chrome JSON, which every trace viewer reads.

The file is streamed, one event a line. What makes a viewer show it right, and is easily lost: times are integer ns
written as µs with at most three decimals, as 1 ns of overlap drops a slice; ids are positive and unique over the file;
text is raw UTF-8; an arrow's start lies inside its slice, and its end is bound to the slice around it (`bp: "e"`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.cells import Cell, Digits, Literal, Table, Word, joined, only
from pipetrace.trace.description import ARROWS, CATEGORIES, CounterTrack, Slices
from pipetrace.trace.flows import Ends
from pipetrace.trace.naming import Arg
from pipetrace.trace.packing import packing
from pipetrace.trace.text import Choice, Text, where
from pipetrace.trace.tracks import Tracks

_DECIMALS = Table([f".{ns:03d}".rstrip("0").encode() if ns else b"" for ns in range(1000)])
_THREE = Table([b"%03d" % digits for digits in range(1000)])


def write_chrome(path: Path, tracks: Tracks, about: Mapping[str, object]) -> None:
    """Writes Chrome JSON.

    Args:
        path: Where to; compressed when the name ends in `.gz`. It is there only when it is whole.
        tracks: What it shows.
        about: What it says of itself; anything JSON has a form for, the rest as text.

    Raises:
        OutputError: The file cannot be written.
    """
    with packing(path) as file:
        file.write(f'{{"displayTimeUnit":"ns","metadata":{json_text(about)},"traceEvents":[\n'.encode())
        file.write(",\n".join(_declarations(tracks)).encode())
        for events in chrome_events(tracks):
            file.write(events)
        file.write(b"\n]}\n")


def _declarations(tracks: Tracks) -> Iterator[str]:
    for order, process in enumerate(tracks.processes):
        yield _named(process.pid, None, "process_name", "name", process.name)
        if process.label:
            yield _named(process.pid, None, "process_labels", "labels", process.label)
        yield _named(process.pid, None, "process_sort_index", "sort_index", order)
    for order, track in enumerate(tracks.tracks):
        yield _named(track.pid, track.tid, "thread_name", "name", track.name)
        yield _named(track.pid, track.tid, "thread_sort_index", "sort_index", order)


def _named(pid: int, tid: int | None, what: str, key: str, value: str | int) -> str:
    thread = "" if tid is None else f'"tid":{tid},'
    return f'{{"ph":"M","pid":{pid},{thread}"name":"{what}","args":{{"{key}":{json_text(value)}}}}}'


def chrome_events(tracks: Tracks) -> Iterator[bytes]:
    """The events of counters, slices and arrows, each with a comma and a line's end before it, many at a time."""
    for counter in tracks.counters:
        yield from _counter(counter)
    pids, tids = (np.array([getattr(track, of) for track in tracks.tracks], dtype=np.int64) for of in ("pid", "tid"))
    for block in tracks.blocks():
        pid, tid = pids[block.track], tids[block.track]
        yield from _slices(block, pid, tid)
        # Behind their slices: where times are equal, viewers bind in the order of the file.
        for head, ends in (('"s"', block.leaves), ('"f","bp":"e"', block.arrives)):
            yield from _ends(head, ends, pid, tid, tracks.arrow_kind(ends.arrow))


def _counter(counter: CounterTrack) -> Iterator[bytes]:
    time, value = counter.series.time, counter.series.value
    # Viewers call the track by both, the name and the value's key.
    key = json_text(counter.unit)
    cells = [
        *_cells([f',\n{{"ph":"C","pid":{counter.pid},"name":{json_text(counter.name)},"ts":']),
        *_micros(time),
        *_cells([f',"args":{{{key}:']),
        *_cells([where("-", value < 0)]),
        *_decimal(np.abs(value), counter.per),
        Literal(b"}}"),
    ]
    yield from joined(cells, time.size)


def _slices(block: Slices, pid: IntArray, tid: IntArray) -> Iterator[bytes]:
    cells = [
        Literal(b',\n{"ph":"X","pid":'),
        Digits(pid),
        Literal(b',"tid":'),
        Digits(tid),
        Literal(b',"name":"'),
        *_cells(block.name, escaped=True),
        Literal(b'","cat":"'),
        *_cells([Choice(CATEGORIES, block.lane)]),
        Literal(b'","ts":'),
        *_micros(block.start),
        Literal(b',"dur":'),
        *_micros(block.end - block.start),
        Literal(b',"args":{'),
    ]
    for number, arg in enumerate(block.args):
        cells += _arg(arg, comma=number > 0)
    cells.append(Literal(b"}}"))
    yield from joined(cells, len(block))


def _arg(arg: Arg, *, comma: bool) -> Iterator[Cell]:
    key = ("," if comma else "") + json_text(arg.key) + ":"
    if not isinstance(arg.value, np.ndarray):
        yield _literal(key + '"', arg.present)
        yield from only(list(_cells(arg.value, escaped=True)), arg.present)
        yield _literal('"', arg.present)
        return
    negative = arg.value < 0 if arg.present is None else (arg.value < 0) & arg.present
    yield _literal(key, arg.present)
    if negative.any():
        yield from _cells([where("-", negative)])
    yield Digits(np.abs(arg.value), arg.present)


def _ends(head: str, ends: Ends, pid: IntArray, tid: IntArray, kind: IntArray) -> Iterator[bytes]:
    if not ends.row.size:
        return
    name = Choice(tuple(f',"cat":"{arrow}","name":"{arrow}","ts":' for arrow in ARROWS), kind)
    cells = [
        *_cells([f',\n{{"ph":{head},"pid":']),
        Digits(pid[ends.row]),
        Literal(b',"tid":'),
        Digits(tid[ends.row]),
        Literal(b',"id":'),
        Digits(ends.arrow + 1),
        *_cells([name]),
        *_micros(ends.at),
        Literal(b"}"),
    ]
    yield from joined(cells, ends.row.size)


def _micros(ns: IntArray) -> list[Cell]:
    """ns not below 0 as µs with three decimals at most; no float is on the way, so that nothing is rounded."""
    whole = ns // 1000
    return [Digits(whole), Word(_DECIMALS, ns - whole * 1000)]


def _decimal(value: IntArray, per: int) -> list[Cell]:
    """Whole numbers not below 0, of which `per` (1, 1,000 or 1,000,000) make one of what is written."""
    if per == 1:
        return [Digits(value)]
    if per == 1000:
        return _micros(value)
    thousands = value // 1000
    whole, rest = thousands // 1000, value - thousands * 1000
    return [Digits(whole), Literal(b"."), Word(_THREE, thousands - whole * 1000), Word(_THREE, rest)]


def _cells(text: Text, *, escaped: bool = False) -> Iterator[Cell]:
    """A text as bytes; `escaped` as JSON wants it inside quotes."""

    def encoded(word: str) -> bytes:
        return (json_text(word)[1:-1] if escaped else word).encode()

    for piece in text:
        if isinstance(piece, str):
            yield Literal(encoded(piece))
        elif isinstance(piece, Choice):
            yield Word(Table([encoded(word) for word in piece.words]), piece.index)
        else:
            if piece.before:
                yield Literal(encoded(piece.before), piece.present)
            yield Digits(piece.value, piece.present)
            if piece.after:
                yield Literal(encoded(piece.after), piece.present)


def _literal(text: str, present: BoolArray | None) -> Literal:
    return Literal(text.encode(), present)


def json_text(value: object) -> str:
    """A value as JSON that every viewer loads: raw UTF-8, no NaN, lone surrogates replaced."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json_text(str(key))}:{json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return "[" + ",".join(map(json_text, value)) + "]"
    whole = str(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = json.dumps(whole, ensure_ascii=False)
    # Some viewers take the quote after a closing backslash for an escaped one.
    return text[:-3] + '\\u005c"' if whole.endswith("\\") else text
