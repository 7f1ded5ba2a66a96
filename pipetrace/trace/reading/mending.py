"""JSON as it occurs in the wild, made into JSON, with a count of what was done.

Python writes NaN and Infinity, C++ nan and inf; names carry control characters and Windows paths; lists end in a
comma. What was done is counted by kind, to be told.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

NO_NUMBER = "numbers that were NaN or infinite were read as absent"
CONTROL = "control characters in text were replaced"
ESCAPE = "backslashes that escape nothing were read as backslashes"
SURROGATE = "halves of a character were replaced"
TWICE = "keys stand twice in one object, and the last was taken"
COMMA = "commas too many or too few were overlooked"
NO_UTF8 = "pieces of text that are no UTF-8 were replaced"


class Watch:
    """Counts what no JSON may hold, wherever it stands: decoders overlook it in what nobody asked for.

    A key that one wrong byte made another key is such a place, and the value behind it would be lost without a word.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def see(self, piece: bytes, *, last: bool = False) -> None:
        """Looks at the next piece."""
        text = self._decoder.decode(piece, final=last)
        if not text.isascii() and (wrong := text.count("\ufffd") - piece.count(b"\xef\xbf\xbd")) > 0:
            self.counts[NO_UTF8] += wrong
        if control := len(piece) - len(piece.translate(None, _CONTROLS)):
            self.counts[CONTROL] += control
        if b"\t" in piece and (tabs := len(_INNER_TAB.findall(piece))):
            self.counts[CONTROL] += tabs


_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))
_INNER_TAB = re.compile(rb"(?<=[^\n\r\t ,:\[{])\t+(?=[^\n\r\t }\],:])")  # one that indents nothing
_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"'  # a string, mended inside
    rb"|(?P<number>[-+]?\b(?:NaN|nan|Infinity|infinity|inf)\b)"
    rb"|(?P<comma>,(?=\s*[,\]}]))",
    re.DOTALL,
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_SURROGATES = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
# A string that the data ends in reaches to its end, so that no bracket in it counts.
_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)


def mended(data: bytes) -> tuple[bytes, Counter[str]]:
    """The text with what can be mended mended, and how often what was; what a `Watch` counts is not counted.

    Pieces of one text may be mended one by one, where they are cut between values.
    """
    counts: Counter[str] = Counter()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()

    def mend(match: re.Match[bytes]) -> bytes:
        if match["number"]:
            counts[NO_NUMBER] += 1
            return b"null"
        if match["comma"]:
            counts[COMMA] += 1
            return b""
        return _mended_string(match[0], counts)

    return _TOKEN.sub(mend, data), counts


def _mended_string(text: bytes, counts: Counter[str]) -> bytes:
    if breaks := text.count(b"\n") + text.count(b"\r"):
        counts[CONTROL] += breaks  # which a `Watch` cannot tell from those that stand between values
    text = _CONTROL.sub(b" ", text)
    if b"\\" in text:

        def escape(match: re.Match[bytes]) -> bytes:
            if len(match[0]) > 1:
                return match[0]
            counts[ESCAPE] += 1
            return b"\\\\"

        def surrogate(match: re.Match[bytes]) -> bytes:
            if len(match[0]) > 6:
                return match[0]
            counts[SURROGATE] += 1
            return b"\xef\xbf\xbd"

        text = _SURROGATES.sub(surrogate, _ESCAPE.sub(escape, text))
    return text


def value_of(data: bytes) -> tuple[Any, Counter[str]]:
    """A JSON value with what can be mended mended.

    Raises:
        ValueError: It is none even so.
    """
    try:
        return msgspec.json.decode(data), Counter()
    except (msgspec.DecodeError, RecursionError):
        text, counts = mended(data)
    try:
        return json.loads(text), counts
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def end_of_value(data: bytes, at: int) -> int | None:
    """Where the object or array that begins at `at` ends; None where the data ends before it."""
    depth = 0
    for match in _STRUCTURE.finditer(data, at):
        token = match[0][:1]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth <= 0:
                return match.end()
    return None


_BEGINS = re.compile(rb'\{\s*"(?:ph|name|cat|ts|dur|pid|tid|id|s|bp|args)"\s*:')
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=" + _BEGINS.pattern + rb")")
_BEGINS_OR_ENDS = re.compile(rb"\]|" + _BEGINS.pattern)
_NEAR = 64


def events_one_by_one(data: bytes, at: int, separator: bytes | None) -> Iterator[tuple[int, int, bytes | None]]:
    """Events where a whole stretch of them is no JSON: (start, end, text), the text None where it is no event.

    Stops before the `]` that ends them, or where the data ends; what is behind the last event's end is not used up.

    Args:
        data: What is to be read.
        at: Where an event begins, or what stands between two.
        separator: From the end of an event to the first key of the next one, where that is known.
    """
    while True:
        while at < len(data) and data[at : at + 1] in b" \t\r\n,":
            at += 1
        if at >= len(data) or data[at : at + 1] == b"]":
            return
        if data[at : at + 1] != b"{":
            # Neither an event nor the end: what stands between is lost, up to where either seems to be.
            near = _BEGINS.search(data, at, at + _NEAR)
            resumed = near.start() if near is not None else _next_event(data, at, separator)
            if resumed is None:
                ends = _BEGINS_OR_ENDS.search(data, at)
                resumed = len(data) if ends is None else ends.start()
            stop = resumed
            yield at, stop, None
            at = stop
            continue
        end, resumed = end_of_value(data, at), _next_event(data, at, separator)
        if end is not None and (resumed is None or resumed >= end or _is_json(data[at:end])):
            yield at, end, data[at:end]
            at = end
        elif resumed is None:
            yield at, len(data), None
            return
        else:
            # The stretch up to what looks like the next event may be one whose inside is damaged.
            stop = data.rindex(b"}", at, resumed) + 1
            yield at, stop, data[at:stop]
            at = resumed


def _next_event(data: bytes, after: int, separator: bytes | None) -> int | None:
    """Where, behind what cannot be understood, an event seems to begin."""
    if separator is not None:
        found = data.find(separator, after)
        return None if found < 0 else found + separator.index(b"{")
    match = _BOUNDARY.search(data, after)
    return None if match is None else match.end()


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
