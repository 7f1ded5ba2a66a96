"""Timelines as Chrome JSON, which every trace viewer reads.

The file is streamed, one event a line. What makes a viewer show it right, and is easily lost: times are integer ns
written as µs with at most three decimals, as 1 ns of overlap drops a slice; ids are positive and unique over the file;
text is raw UTF-8; an arrow's start lies inside its slice, and its end is bound to the slice around it (`bp: "e"`).
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from pipetrace.timeline import Timeline
from pipetrace.trace.files import replacing
from pipetrace.trace.tracks import Slice, Tracks
from pipetrace.version import __version__

_LINES_AT_ONCE = 4096
_NO_METADATA: Mapping[str, object] = {}


def write_chrome(
    path: Path, timelines: Sequence[tuple[str, Timeline]], *, metadata: Mapping[str, object] = _NO_METADATA
) -> None:
    """Writes one timeline, or two with the second held against the first, as Chrome JSON.

    Args:
        path: Where to; compressed when the name ends in `.gz`. It is there only when it is whole.
        timelines: One or two, with what to call them, e.g. ("ideal", …), ("measured", …).
        metadata: What else the file shall say; anything JSON has a form for, the rest as text.

    Raises:
        OutputError: The file cannot be written.
        ValueError: Neither one nor two timelines.
    """
    tracks = Tracks(timelines)
    with replacing(path) as file:
        if path.name.lower().endswith(".gz"):
            # No name and no time in the header: the same timeline makes the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=3, mtime=0) as packed:
                _write(cast("BinaryIO", packed), tracks, timelines, metadata)
        else:
            _write(file, tracks, timelines, metadata)


def _write(
    file: BinaryIO, tracks: Tracks, timelines: Sequence[tuple[str, Timeline]], metadata: Mapping[str, object]
) -> None:
    about = {
        **metadata,
        "writer": f"pipetrace {__version__}",
        "epoch_ns": tracks.epoch,
        "timelines": [
            {"label": label, "ranks": timeline.ranks, "tiles": len(timeline), "makespan_ns": timeline.makespan}
            for label, timeline in timelines
        ],
        "flows": tracks.arrows,
        "flows_dropped": tracks.dropped,
    }
    file.write(f'{{"displayTimeUnit":"ns","metadata":{json_text(about)},"traceEvents":[\n'.encode())
    events = _events(tracks)
    file.write(next(events).encode())
    while lines := list(islice(events, _LINES_AT_ONCE)):
        file.write((",\n" + ",\n".join(lines)).encode())
    file.write(b"\n]}\n")


def _events(tracks: Tracks) -> Iterator[str]:
    for order, process in enumerate(tracks.processes):
        yield _named(process.pid, None, "process_name", "name", process.name)
        if process.label:
            yield _named(process.pid, None, "process_labels", "labels", process.label)
        yield _named(process.pid, None, "process_sort_index", "sort_index", order)
    for order, track in enumerate(tracks.tracks):
        yield _named(track.pid, track.tid, "thread_name", "name", track.name)
        yield _named(track.pid, track.tid, "thread_sort_index", "sort_index", order)
    for counter in tracks.counters:
        in_us = counter.unit == "ns"
        # Viewers call the track by both, the name and the value's key.
        unit = _quoted("µs" if in_us else counter.unit)
        start = f'{{"ph":"C","pid":{counter.pid},"name":{_quoted(counter.name)},"ts":'
        for time, value in zip(counter.series.time.tolist(), counter.series.value.tolist(), strict=True):
            yield f'{start}{micros(time)},"args":{{{unit}:{micros(value) if in_us else value}}}}}'
    for tile in tracks.slices():
        yield from _slice(tile)


def _named(pid: int, tid: int | None, what: str, key: str, value: str | int) -> str:
    thread = "" if tid is None else f'"tid":{tid},'
    return f'{{"ph":"M","pid":{pid},{thread}"name":"{what}","args":{{"{key}":{json_text(value)}}}}}'


def _slice(tile: Slice) -> Iterator[str]:
    on = f'"pid":{tile.pid},"tid":{tile.tid}'
    args = ",".join(
        f"{_quoted(key)}:{value if isinstance(value, int) else json_text(value)}" for key, value in tile.args.items()
    )
    yield (
        f'{{"ph":"X",{on},"name":{_quoted(tile.name)},"cat":{_quoted(tile.category)},'
        f'"ts":{micros(tile.start)},"dur":{micros(tile.end - tile.start)},"args":{{{args}}}}}'
    )
    # Behind their slice: where times are equal, viewers bind in the order of the file.
    for end in tile.leaves:
        yield f'{{"ph":"s",{on},"id":{end.id},"cat":"{end.category}","name":"{end.name}","ts":{micros(end.at)}}}'
    for end in tile.arrives:
        yield (
            f'{{"ph":"f","bp":"e",{on},"id":{end.id},"cat":"{end.category}","name":"{end.name}","ts":{micros(end.at)}}}'
        )


def micros(ns: int) -> str:
    """Integer ns as µs with three decimals at most; no float is on the way, so that nothing is rounded."""
    whole, rest = divmod(abs(ns), 1000)
    text = f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
    return f"-{text}" if ns < 0 else text


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


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return json_text(text)
