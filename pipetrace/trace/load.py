"""One trace file from disk, with what is wrong with it mended or named.

Real files have a byte-order mark, NaN where a number should be, times in strings, bytes that are no UTF-8, several
gzip members, an end that was never written. What can be read is read, and every mending is told; the rest is refused
in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipetrace.errors import TraceError
from pipetrace.shown import printable, shown
from pipetrace.trace.reading.events import MOST_BASE, Events
from pipetrace.trace.reading.json_stream import Document, Reader
from pipetrace.trace.reading.source import Progress, Source

_MOST_NAMED = 3
_HINT = "give traces as torch.profiler's export_chrome_trace writes them"
_AGAIN = "copy the file again, or export anew"


@dataclass(frozen=True, eq=False)
class TraceFile:
    """What a file holds.

    Args:
        path: Where it lies.
        events: Complete events with a name and a start.
        distributed: `distributedInfo`, empty where absent.
        host: `host_name`, empty where absent.
        pipetrace: What pipetrace's own runs add, empty where absent.
        notes: What was mended or lost, a line each.
        drawn: Whether pipetrace drew it from a timeline, so that nothing was recorded.
        cut: Whether its end is missing.
    """

    path: Path
    events: Events
    distributed: dict[str, Any]
    host: str
    pipetrace: dict[str, Any]
    notes: tuple[str, ...]
    drawn: bool = False
    cut: bool = False


def load_trace(path: Path, progress: Progress | None = None) -> TraceFile:
    """Reads a file of one trace, compressed or not, whatever its name says.

    Args:
        path: Where it lies.
        progress: Is told of every piece that was read.

    Raises:
        TraceError: It cannot be read, or is no trace, or several; with the file and the reason.
    """
    traces = load_file(path, progress)
    if len(traces) > 1:
        raise TraceError(f"{path} holds {len(traces)} traces", "give each trace a file of its own")
    return traces[0]


def load_file(path: Path, progress: Progress | None = None) -> list[TraceFile]:
    """Reads all traces of a file: ranks that wrote to one path left one after the other.

    Raises:
        TraceError: As `load_trace`.
    """
    traces: list[TraceFile] = []
    with Source(path, progress) as source:
        reader = Reader(path, source)
        traces += (_trace(path, of, source, list(_of_file(path, reader, source, of))) for of in reader.documents())
    name = printable(path.name)
    last = [f"{name}: {count} {what}" for what, count in reader.watch.counts.items()]
    last += [f"{name}: {line}" for line in (reader.trailing, source.left_out) if line is not None]
    if len(traces) > 1:
        last.append(f"{name}: {len(traces)} traces stand one after the other in it, and all were read")
    traces[-1] = _with_notes(traces[-1], last)
    return traces


def _with_notes(trace: TraceFile, notes: list[str]) -> TraceFile:
    return TraceFile(**{**vars(trace), "notes": (*trace.notes, *notes)})


def _trace(path: Path, document: Document, source: Source, notes: list[str]) -> TraceFile:
    members = document.members
    how = source.cut or f"the JSON does not end (the data ends at byte {document.cut})"
    if not document.has_events:
        if document.cut is not None:
            raise TraceError(f"{path} is cut off: {how}", _AGAIN)
        raise TraceError(f"{path} has no traceEvents, so it is no trace", _HINT)
    if document.cut is not None and not len(document.events):
        raise TraceError(f"{path} is cut off before its first whole event: {how}", _AGAIN)
    if document.lost and not len(document.events):
        at, why = document.lost[0]
        raise TraceError(f"{path} holds no event that can be read: {why} at byte {at}", _HINT)
    document.events.base = _base(path, members.get("baseTimeNanoseconds"))
    metadata, host = members.get("metadata"), members.get("host_name")
    return TraceFile(
        path,
        document.events.finish(),
        _table(members.get("distributedInfo")),
        host if isinstance(host, str) else "",
        _table(members.get("pipetrace")),
        tuple(notes),
        drawn=isinstance(metadata, dict) and str(metadata.get("writer")).startswith("pipetrace "),
        cut=document.cut is not None,
    )


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_file(path: Path, reader: Reader, source: Source, document: Document) -> Iterator[str]:
    """What was mended or lost in a document, a line each."""
    name = printable(path.name)
    if reader.has_byte_order_mark and document.at <= 3:
        yield f"{name}: a byte-order mark at the start was skipped"
    for what, count in (document.mended + document.events.mended).items():
        yield f"{name}: {count} {what}"
    if document.lost:
        some = ", ".join(f"{why} at byte {at:,}" for at, why in document.lost[:_MOST_NAMED])
        more = f" and {len(document.lost) - _MOST_NAMED} more" if len(document.lost) > _MOST_NAMED else ""
        yield f"{name}: what could not be read was left out, so that events are missing: {some}{more}"
    if document.events.lost_times:
        yield f"{name}: {document.events.lost_times} events with an impossible time were left out"
    if document.events.unclosed:
        yield f"{name}: {document.events.unclosed} ranges that only begin or only end were left out"
    if document.cut is not None:
        how = source.cut or "the JSON does not end"
        yield (
            f"{name}: {how}: it was read up to byte {document.cut:,}, and what was recorded behind that is missing, "
            "so that figures are of what is left"
        )


def _base(path: Path, base: Any) -> int:
    value = -1
    if base is None:
        value = 0
    elif isinstance(base, str):
        value = int(base) if re.fullmatch(r"\s*[0-9]{1,19}\s*", base) else -1
    elif isinstance(base, int | float):
        with suppress(ValueError, OverflowError):  # what is infinite or no number
            value = int(base)
    if not 0 <= value <= MOST_BASE:
        raise TraceError(f"{path}: baseTimeNanoseconds {shown(base)} is no time")
    return value
