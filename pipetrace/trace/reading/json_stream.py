"""A trace's JSON, event by event: what stands beside the events, and the events by the thousand.

Events are decoded a stretch at a time. Where a stretch may end is guessed from what stands between the first two
events of the file (torch writes them over several lines, others one a line or all in one); that the guess is right is
seen by the stretch's being JSON. Only where it is none is it looked at event by event, mended, and what is lost told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from pipetrace.errors import TraceError
from pipetrace.trace.reading.events import Args, Collector, Event
from pipetrace.trace.reading.mending import COMMA, TWICE, Watch, end_of_value, events_one_by_one, mended, value_of
from pipetrace.trace.reading.nearly import is_damaged_one_of
from pipetrace.trace.reading.repeated import repeated_keys
from pipetrace.trace.reading.source import Source

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HINT = "give traces as torch.profiler's export_chrome_trace writes them"
_WANTED = ("distributedInfo", "baseTimeNanoseconds", "host_name", "pipetrace", "metadata")
_KEY = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s,\]}"]+', re.DOTALL)
_BETWEEN = re.compile(rb'\s*,\s*\{\s*"[^"\\]{0,20}"')
_SPACE = b" \t\r\n"
_STRETCH = 8 << 20
"""Bytes in which events begin again somewhere; where they seem not to, they are looked for one by one."""
_FAST = msgspec.json.Decoder(list[Event])
_EXACT = msgspec.json.Decoder(list[Event], float_hook=Decimal)
_LOOSE_ARGS = {"correlation", "stream", "device", "name", "labels"} | {
    f.encode_name for f in msgspec.structs.fields(Args) if f.encode_name != f.name
}


@dataclass
class Document:
    """One JSON document of a file: a file of two has two traces.

    Args:
        at: Where it begins, in bytes of the (decompressed) file.
        events: What it holds.
        members: Its other entries, as far as they are used.
        has_events: Whether there was a list of events at all.
        mended: How often what was mended.
        lost: Stretches that could not be read: (byte, why).
        cut: Where the document ended before its time; None where it did not.
    """

    at: int
    events: Collector = field(default_factory=Collector)
    members: dict[str, Any] = field(default_factory=dict)
    has_events: bool = False
    mended: Counter[str] = field(default_factory=Counter)
    lost: list[tuple[int, str]] = field(default_factory=list)
    cut: int | None = None


class Reader:
    """Reads the documents of one file.

    Args:
        path: Of the file, for messages.
        source: Its bytes.
    """

    def __init__(self, path: Path, source: Source) -> None:
        self._path = path
        self._source = source
        self._data = b""
        self._at = 0  # place in _data
        self._before = 0  # bytes before _data
        self._separator: bytes | None = None
        self._decoder = _FAST
        self.trailing: str | None = None
        """What stands behind the last document and is none."""
        self.has_byte_order_mark = False
        self.watch = Watch()

    def documents(self) -> Iterator[Document]:
        """Every document, read to its end.

        Raises:
            TraceError: The file holds none, or cannot be read.
        """
        self._more()
        if self._data.startswith(_BYTE_ORDER_MARK):
            self.has_byte_order_mark = True
            self._at = len(_BYTE_ORDER_MARK)
        if not self._skip(_SPACE):
            raise TraceError(f"{self._path} is empty", _HINT)
        count = 0
        while self._skip(_SPACE):
            first = self._data[self._at : self._at + 1]
            if first not in (b"{", b"["):
                if not count:
                    raise self._no_trace()
                self.trailing = f"{self._rest()} bytes behind the end of the trace are none and were left out"
                return
            document = Document(self.place)
            self._at += 1
            if first == b"[":
                # Chrome's other form, of which torch writes none: events alone.
                self._read_events(document)
            else:
                self._read_members(document)
            count += 1
            yield document

    @property
    def place(self) -> int:
        """Where reading is, in bytes of the (decompressed) file."""
        return self._before + self._at

    def _more(self) -> bool:
        """Takes the next piece, and lets go of what was used; False at the end."""
        piece = self._source.read()
        self.watch.see(piece, last=not piece)
        if piece:
            self._before += self._at
            self._data = self._data[self._at :] + piece
            self._at = 0
        return bool(piece)

    def _skip(self, letters: bytes) -> bool:
        """Goes on to what is none of these letters; False where the data ends first."""
        while True:
            rest = self._data[self._at : self._at + 4096]
            stripped = rest.lstrip(letters)
            self._at += len(rest) - len(stripped)
            if stripped:
                return True
            if not rest and not self._more():
                return False

    def _rest(self) -> int:
        count = len(self._data) - self._at
        while piece := self._source.read():
            count += len(piece)
        return count

    def _no_trace(self) -> TraceError:
        text = self._data[self._at : self._at + 65536]
        try:
            value_of(text.strip())
        except ValueError:
            return TraceError(f"{self._path} is no JSON (at byte {self.place})", _HINT)
        return TraceError(f"{self._path} is JSON, but no trace: it holds neither an object nor an array", _HINT)

    def _until(self, find: Callable[[], Any]) -> Any:
        """What `find` finds in the data, of which more is taken until it does; None at the end."""
        asked = 0
        while (found := find()) is None:
            # Looking again only when the data has doubled keeps the whole linear.
            asked = 2 * (len(self._data) - self._at)
            if not self._more():
                return None
            while len(self._data) - self._at < asked and self._more():
                pass
        return found

    def _read_members(self, document: Document) -> None:
        while True:
            if not self._skip(_SPACE + b","):
                document.cut = self.place
                return
            if self._data[self._at : self._at + 1] == b"}":
                self._at += 1
                return
            key = None
            if self._data[self._at : self._at + 1] == b'"':
                key = self._until(lambda: self._matched(_KEY))
            if key is None:
                if not document.members and not document.has_events:
                    raise TraceError(f"{self._path} is no JSON: no key at byte {self.place}", _HINT)
                document.lost.append((self.place, "no key of a JSON object"))
                if document.has_events or not self._resume_at_key():
                    document.cut = self.place
                    return
                continue
            name = key[1].decode("utf-8", "replace")
            self._at = key.end()
            if not self._skip(_SPACE):
                document.cut = self.place
                return
            self._read_member(document, name)
            if document.cut is not None:
                return

    def _matched(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """A match here that does not touch the end of the data, behind which it might go on."""
        match = pattern.match(self._data, self._at)
        return match if match is not None and (match.end() < len(self._data) or self._source.ended) else None

    def _resume_at_key(self) -> bool:
        """Goes on to the list of events where what stands before it is damaged."""
        found = self._until(lambda: re.compile(rb'"traceEvents"\s*:\s*\[').search(self._data, self._at))
        if found is None:
            return False
        self._at = found.start()
        return True

    def _read_member(self, document: Document, name: str) -> None:
        begin = self.place
        if name in document.members:
            document.mended[TWICE] += 1
        elif is_damaged_one_of(name, (*_WANTED, "traceEvents")):
            document.mended["keys that are called nearly as known ones were left out"] += 1
        if name == "traceEvents":
            if self._data[self._at : self._at + 1] != b"[":
                raise TraceError(f"{self._path}: traceEvents is no list (at byte {self.place})", _HINT)
            if document.has_events:
                document.mended["lists of events beyond the first were read as well"] += 1
            self._at += 1
            self._read_events(document)
            return
        if self._data[self._at : self._at + 1] in (b"{", b"["):
            end = self._until(lambda: end_of_value(self._data, self._at))
        else:
            match = self._until(lambda: self._matched(_SCALAR))
            end = None if match is None else match.end()
        if end is None:
            document.cut = self._before + len(self._data)
            self._at = len(self._data)
            return
        text, self._at = self._data[self._at : end], end
        if name not in _WANTED:
            document.members.setdefault(name, None)
            return
        try:
            document.members[name], counts = value_of(text)
        except ValueError:
            document.lost.append((begin, f"{name} is no JSON"))
        else:
            document.mended.update(counts)

    # Events.

    def _read_events(self, document: Document) -> None:
        document.has_events = True
        while document.cut is None:
            if not self._skip(_SPACE + b","):
                document.cut = self.place
                return
            if self._data[self._at : self._at + 1] == b"]":
                self._at += 1
                return
            stop = self._last_boundary()
            if stop is not None and self._decode(document, self._data[self._at : stop]):
                self._at = stop
                continue
            if stop is None and len(self._data) - self._at < _STRETCH and self._more():
                continue
            # The last events of the file, or a stretch that is no JSON, or in which the events end.
            self._read_one_by_one(document)

    def _last_boundary(self) -> int | None:
        """Where the last event that is wholly here seems to end."""
        if self._separator is None:
            end = end_of_value(self._data, self._at)
            between = None if end is None else _BETWEEN.match(self._data, end)
            if between is None:
                return None
            self._separator = b"}" + between[0]
        at = self._data.rfind(self._separator, self._at)
        return None if at < 0 else at + 1

    def _decode(self, document: Document, text: bytes) -> bool:
        """Takes a stretch of whole events, if that is what it is."""
        text = b"[" + text + b"]"
        try:
            events = self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            mended_text, counts = mended(text)
            if mended_text == text:
                return False
            text = mended_text
            try:
                events = self._decoder.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return False
            document.mended.update(counts)
        if twice := repeated_keys(text, events):
            document.mended[TWICE] += twice
        if not document.events.add(events):
            self._decoder = _EXACT
            document.events.add(self._decoder.decode(text))
        return True

    def _read_one_by_one(self, document: Document) -> None:
        """The events of the data that is here, those mended or lost that are none."""
        separator = self._separator
        if len(self._data) - self._at >= _STRETCH:
            self._separator = None  # it seems to stand no more between events
        last = len(self._data)
        is_first = True
        for start, end, text in events_one_by_one(self._data, self._at, separator):
            begin = self._before + start
            if (text is None or end == last) and not self._source.ended and self._more():
                return  # look again, with more of it
            if not is_first and self._data[self._at : start].strip(_SPACE) != b",":
                document.mended[COMMA] += 1
            is_first = False
            self._at = end
            if text is None and end == last and self._source.ended:
                document.cut = begin
                return
            if text is None or not (self._decode(document, text) or self._decode_loosely(document, text)):
                document.lost.append((begin, "no event"))

    def _decode_loosely(self, document: Document, text: bytes) -> bool:
        """Takes an event whose parts are of unexpected types."""
        try:
            value, counts = value_of(text)
        except ValueError:
            return False
        if not isinstance(value, dict):
            return False
        document.mended.update(counts)
        args = value.get("args")
        known = {key: args.get(key) for key in _LOOSE_ARGS} if isinstance(args, dict) else None
        event = {key: value.get(key) for key in ("ph", "name", "cat", "ts", "dur", "pid", "tid")}
        of = msgspec.convert({**event, "args": known}, Event)
        if twice := repeated_keys(text, [of]):
            document.mended[TWICE] += twice
        if not document.events.add([of]):
            exact = {time: Decimal(repr(getattr(of, time))) for time in ("ts", "dur") if getattr(of, time) is not None}
            document.events.add([msgspec.structs.replace(of, **exact)])
        return True
