"""Ranks' traces reduced to small files, and read back beside traces that were not.

A file is gzipped JSON, `{"pipetrace_reading": 2, "sha256": "...", "content": {...}}`, of some kilobytes a step: the
actions with their times, when transfers were posted and came, and everything that was told of the trace. It is written
on the node where the trace lies, and stands for it wherever traces are read. So nothing in it is believed unseen: the
sum is over the content as it is written, and every number is looked at as well.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pipetrace.errors import TraceError
from pipetrace.reading import read_whole
from pipetrace.shown import printable, shown
from pipetrace.trace.files import replacing
from pipetrace.trace.find import Asked
from pipetrace.trace.places import MOST_RANKS
from pipetrace.trace.rank_reading import How, RankReading, jobs_for, read_files
from pipetrace.trace.reading.checked import wrong_in
from pipetrace.trace.reading.model import RankSteps
from pipetrace.trace.reading.source import Progress

SUFFIX = ".steps.json.gz"
SCHEMA = 2
_MOST_BYTES = 1 << 28
_AGAIN = "reduce the trace again"


class _Content(msgspec.Struct):
    """What stands in a file; as a `RankReading`."""

    path: str
    rank: int
    steps: dict[int, RankSteps]
    world: int | None = None
    group: tuple[int, ...] | None = None
    host: str = ""
    pipetrace: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    is_shared: bool = False


class _File(msgspec.Struct):
    """A file: its content with the sum over it, in hexadecimal digits."""

    pipetrace_reading: int
    sha256: str
    content: msgspec.Raw


def write_reading(folder: Path, reading: RankReading) -> Path:
    """Writes what is left of a trace, and returns where.

    Raises:
        OutputError: It cannot be written.
    """
    content = _Content(
        str(reading.path).encode("utf-8", "replace").decode(),  # a name may hold bytes that are no text
        reading.rank,
        reading.steps,
        reading.world,
        reading.group,
        reading.host,
        reading.pipetrace,
        reading.notes,
        reading.is_shared,
    )
    encoded = msgspec.json.encode(content)
    file = _File(SCHEMA, hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
    path = folder / f"rank{reading.rank}{SUFFIX}"
    with replacing(path) as out:
        out.write(gzip.compress(msgspec.json.encode(file), 6, mtime=0))
    return path


def read_reading(path: Path) -> RankReading:
    """Reads what `write_reading` wrote.

    Raises:
        TraceError: It is none, is damaged, or of another version.
    """
    try:
        of = _content(path, _unzipped(read_whole(path)))
    except (gzip.BadGzipFile, EOFError, ValueError, zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", _AGAIN) from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}") from None
    if (wrong := _wrong_in(of)) is not None:
        raise TraceError(f"{path} is damaged: {wrong}", _AGAIN)
    return RankReading(
        Path(of.path),
        of.rank,
        of.world,
        of.group,
        of.host,
        of.pipetrace,
        tuple(map(printable, of.notes)),
        of.steps,
        of.is_shared,
    )


def _unzipped(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        unzipped = file.read(_MOST_BYTES + 1)
    if len(unzipped) > _MOST_BYTES:
        raise ValueError("it unzips to more than what is left of any trace")
    return unzipped


def _content(path: Path, data: bytes) -> _Content:
    version = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("pipetrace_reading")
    if version is None or bytes(version) != str(SCHEMA).encode():
        named = "" if version is None else printable(bytes(version)[:60].decode(errors="replace"))
        told = f"schema {named}" if named else "no schema"
        raise TraceError(f"{path} was written with {told}, this pipetrace reads schema {SCHEMA}", _AGAIN)
    file = msgspec.json.decode(data, type=_File)
    if hashlib.sha256(file.content).hexdigest() != file.sha256:
        raise ValueError("what stands in it is not what was written")
    return msgspec.json.decode(file.content, type=_Content)


def _wrong_in(of: _Content) -> str | None:
    """What cannot be, in words; None where all can."""
    if not 0 <= of.rank < MOST_RANKS or (of.world is not None and not 0 < of.world <= MOST_RANKS):
        return f"it is of rank {of.rank} of {of.world}"
    if of.group is not None and not all(0 <= member < MOST_RANKS for member in of.group):
        return f"its process group is {shown(of.group)}"
    if set(of.steps) != (set(range(len(of.steps))) if of.is_shared else {of.rank}):
        return f"it is of rank {of.rank}, but has steps of {shown(sorted(of.steps))}"
    return next((wrong for steps in of.steps.values() if (wrong := wrong_in(steps)) is not None), None)


def load_readings(
    asked: Sequence[Asked], how: How, *, progress: Progress | None = None, jobs: int | None = 1
) -> list[RankReading]:
    """All ranks of what was asked for.

    Args:
        asked: What to read.
        how: How.
        progress: Is told how many bytes were read since it was told last.
        jobs: Processes that read at once; as many as pay where None.

    Raises:
        TraceError: Something cannot be read, or holds nothing that was recorded.
    """
    traces = [file for of in asked for file in of.files if not file.name.endswith(SUFFIX)]
    read = read_files(traces, how, progress=progress, jobs=jobs_for(traces) if jobs is None else jobs)
    by_file = dict(zip(traces, read, strict=True))
    by_file |= {file: [read_reading(file)] for of in asked for file in of.files if file.name.endswith(SUFFIX)}
    for of in asked:
        if not of.repeated and not any(by_file[file] for file in of.files):
            raise of.nothing()
    found = []
    for of in asked:
        readings = [reading for file in of.files for reading in by_file[file]]
        note = of.not_read([file for file in of.files if not by_file[file]])
        if readings and note is not None:
            readings[0] = replace(readings[0], notes=(note, *readings[0].notes))
        found += readings
    return found
