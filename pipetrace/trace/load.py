"""One trace file from disk, with what is wrong with it mended or named.

Real files have a byte-order mark, NaN where a number should be, times in strings, bytes that are no UTF-8, several
gzip members. What can be read is read, and every mending is told; the rest is refused in one line.
"""

from __future__ import annotations

import gzip
import re
import zlib
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import msgspec

from pipetrace.errors import TraceError
from pipetrace.reading import read_whole
from pipetrace.shown import printable, shown

_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# About the year 2096 in µs and in ns; the sum of both still fits 64 bits.
_MOST_MICROS = Decimal(4 * 10**15)
_NONE = Decimal(0)
_MOST_BASE = 4 * 10**18
_HINT = "give traces as torch.profiler's export_chrome_trace writes them"
# A string, to be left alone, or one of the words that Python and C++ write for what JSON has no number for.
_NO_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:NaN|nan|Infinity|infinity|inf)\b', re.DOTALL)


class Event(msgspec.Struct, gc=False):
    """An event of a trace, as far as it is needed.

    Times are in µs as they stand in the file: a float would round them to about 1 ns. Text is Any, as files put
    numbers, null and more there.
    """

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: Decimal | None = None
    dur: Decimal | None = None


class _File(msgspec.Struct):
    traceEvents: list[Event]
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    host_name: Any = None
    pipetrace: Any = None
    metadata: Any = None


class TraceFile(msgspec.Struct, frozen=True):
    """What a file holds.

    Args:
        path: Where it lies.
        events: Complete events with a name and a start; those of other kinds are left out.
        base: Unix ns to which the events' times are added.
        distributed: `distributedInfo`, empty where absent.
        host: `host_name`, empty where absent.
        pipetrace: What pipetrace's own runs add, empty where absent.
        notes: What was mended, a line each.
        drawn: Whether pipetrace drew it from a timeline, so that nothing was recorded.
    """

    path: Path
    events: list[Event]
    base: int
    distributed: dict[str, Any]
    host: str
    pipetrace: dict[str, Any]
    notes: tuple[str, ...]
    drawn: bool = False

    def start(self, event: Event) -> int:
        """Unix ns of an event's start, exactly."""
        return self.base + nanoseconds(event.ts or _NONE)

    def end(self, event: Event) -> int:
        """Unix ns of an event's end, exactly; a duration below 0 counts as none."""
        return self.base + nanoseconds((event.ts or _NONE) + max(event.dur or _NONE, _NONE))


def nanoseconds(micros: Decimal) -> int:
    """µs as ns, rounded to the nearest; exact for up to three decimals."""
    return int((micros * 1000).to_integral_value(ROUND_HALF_EVEN))


def load_trace(path: Path) -> TraceFile:
    """Reads one file, compressed or not, whatever its name says.

    Raises:
        TraceError: It cannot be read, or is no trace; with the file and the reason.
    """
    data = _read(path)
    notes: list[str] = []
    if data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
        notes.append(f"{printable(path.name)}: a byte-order mark at the start was skipped")
    if not data.strip():
        raise TraceError(f"{path} is empty", _HINT)
    try:
        file = _decode(path, data)
    except msgspec.DecodeError as error:
        data, mended = _mend(path, data)
        if not mended:
            raise _refusal(path, data, error) from None
        notes += mended
        try:
            file = _decode(path, data)
        except msgspec.DecodeError as still:
            raise _refusal(path, data, still) from None
    events, lost = _usable(file.traceEvents)
    if lost:
        notes.append(f"{printable(path.name)}: {lost} events with an impossible time were left out")
    return TraceFile(
        path,
        events,
        _base(path, file.baseTimeNanoseconds),
        file.distributedInfo if isinstance(file.distributedInfo, dict) else {},
        file.host_name if isinstance(file.host_name, str) else "",
        file.pipetrace if isinstance(file.pipetrace, dict) else {},
        tuple(notes),
        drawn=isinstance(file.metadata, dict) and str(file.metadata.get("writer")).startswith("pipetrace "),
    )


def _usable(events: list[Event]) -> tuple[list[Event], int]:
    """Complete events with a name and times, and how many were lost for their times."""
    usable, lost = [], 0
    for event in events:
        if event.ph != "X" or event.ts is None or not isinstance(event.name, str):
            continue
        # Not a number compares with nothing, so ask for it first; and abs() would overflow at 1e999999999.
        if all(time.is_finite() and time <= _MOST_MICROS for time in (event.ts.copy_abs(), event.dur or _NONE)):
            usable.append(event)
        else:
            lost += 1
    return usable, lost


def _read(path: Path) -> bytes:
    try:
        data = read_whole(path)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise TraceError(f"{str(path)!r}: {error}") from None
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise TraceError(
            f"{path}: the gzip data is cut off (the file ends at byte {len(data)})",
            "copy the file again, or export anew",
        ) from None
    except (OSError, zlib.error) as error:
        raise TraceError(f"{path}: the gzip data is damaged: {error}", "copy the file again, or export anew") from None


def _decode(path: Path, data: bytes) -> _File:
    first = data.lstrip()[:1]
    try:
        if first == b"[":
            # Chrome's other form, of which torch writes none: events alone.
            return _File(msgspec.json.decode(data, type=list[Event], strict=False))
        return msgspec.json.decode(data, type=_File, strict=False)
    except msgspec.ValidationError as error:
        if first != b"{":
            raise TraceError(f"{path} is JSON, but no trace: it holds neither an object nor an array", _HINT) from None
        if "traceEvents" in str(error) and "missing" in str(error):
            raise TraceError(f"{path} has no traceEvents, so it is no trace", _HINT) from None
        raise TraceError(f"{path}: {error}", _HINT) from None
    except RecursionError:
        raise TraceError(f"{path} is nested too deeply to be a trace", _HINT) from None


def _mend(path: Path, data: bytes) -> tuple[bytes, list[str]]:
    """The data with what can be mended mended, and what that was."""
    notes = []
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
        notes.append(f"{printable(path.name)}: bytes that are no UTF-8 were replaced")
    count = 0

    def absent(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[0].startswith(b'"'):
            return match[0]
        count += 1
        return b"null"

    data = _NO_NUMBER.sub(absent, data)
    if count:
        notes.append(f"{printable(path.name)}: {count} numbers that were NaN or infinite were read as absent")
    return data, notes


def _refusal(path: Path, data: bytes, error: msgspec.DecodeError) -> TraceError:
    reason = str(error)
    if "truncated" in reason:
        return TraceError(
            f"{path} is cut off: the JSON does not end (the data ends at byte {len(data)})",
            "copy the file again, or export anew",
        )
    return TraceError(f"{path} is no JSON: {reason.removeprefix('JSON is malformed: ')}", _HINT)


def _base(path: Path, base: Any) -> int:
    value = -1
    if base is None:
        value = 0
    elif isinstance(base, str):
        value = int(base) if re.fullmatch(r"\s*[0-9]{1,19}\s*", base) else -1
    elif isinstance(base, int | float):
        with suppress(ValueError, OverflowError):  # what is infinite or no number
            value = int(base)
    if not 0 <= value <= _MOST_BASE:
        raise TraceError(f"{path}: baseTimeNanoseconds {shown(base)} is no time")
    return value
