"""Ranks' traces reduced to small files, and read back beside traces that were not.

A file is gzipped JSON, `{"pipetrace_reading": 1, ...}`, of some kilobytes a step: the actions with their times, when
transfers were posted and came, and everything that was told of the trace. It is written on the node where the trace
lies, and stands for it wherever traces are read.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipetrace.errors import TraceError
from pipetrace.reading import read_whole
from pipetrace.trace.files import replacing
from pipetrace.trace.find import Asked
from pipetrace.trace.rank_reading import How, RankReading, jobs_for, read_files
from pipetrace.trace.reading.model import RankSteps
from pipetrace.trace.reading.source import Progress

SUFFIX = ".steps.json.gz"
SCHEMA = 1


class _File(msgspec.Struct):
    """What stands in a file."""

    pipetrace_reading: int
    path: str
    rank: int
    steps: dict[int, RankSteps]
    world: int | None = None
    group: tuple[int, ...] | None = None
    host: str = ""
    pipetrace: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    is_shared: bool = False


def write_reading(folder: Path, reading: RankReading) -> Path:
    """Writes what is left of a trace, and returns where.

    Raises:
        OutputError: It cannot be written.
    """
    file = _File(
        SCHEMA,
        str(reading.path),
        reading.rank,
        reading.steps,
        reading.world,
        reading.group,
        reading.host,
        reading.pipetrace,
        reading.notes,
        reading.is_shared,
    )
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
        data = gzip.decompress(read_whole(path))
        version = msgspec.json.decode(data, type=dict[str, Any]).get("pipetrace_reading")
        if version != SCHEMA:
            raise TraceError(
                f"{path} was written with schema {version}, this pipetrace reads {SCHEMA}", "reduce the trace again"
            )
        of = msgspec.json.decode(data, type=_File)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "reduce the trace again") from None
    except (EOFError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"{path} is damaged: {error}", "reduce the trace again") from None
    if not of.is_shared and set(of.steps) != {of.rank}:
        raise TraceError(f"{path} is damaged: it is of rank {of.rank}, but has steps of {sorted(of.steps)}")
    return RankReading(
        Path(of.path), of.rank, of.world, of.group, of.host, of.pipetrace, of.notes, of.steps, of.is_shared
    )


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
    return [reading for of in asked for file in of.files for reading in by_file[file]]
