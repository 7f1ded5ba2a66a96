"""Timelines in Perfetto's own format, TrackEvent, which shows more than Chrome JSON can say and is half as large.

Tracks are nested, all ranks under one track, lanes under their rank, in an order of their own; counters have units;
a colour can be shared by what belongs together. https://perfetto.dev/docs/reference/trace-packet-proto has the fields.

The packets are framed here, block by block, as building messages one by one takes 20 µs a slice. The tests read them
back with the protos of the `perfetto` package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.cells import Cell, Digits, Literal, Table, Word, apart, joined, only
from pipetrace.trace.chrome import json_text
from pipetrace.trace.colours import distinct_ids
from pipetrace.trace.description import CATEGORIES, CounterTrack, Slices
from pipetrace.trace.flows import Ends
from pipetrace.trace.naming import Arg
from pipetrace.trace.packing import packing
from pipetrace.trace.protobuf import data, doubles, fixed64s, messages, number, numbers, utf8
from pipetrace.trace.text import Choice, Text
from pipetrace.trace.tracks import Tracks

_MOST_NAMES = 1 << 16  # that are kept to be referred to; names beyond are written out, so that memory is bounded

# Numbers of fields, by message.
_PACKET = 1  # of Trace
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 8, 10, 11, 12, 13, 60
_UUID, _NAME, _PARENT, _COUNTER, _ORDERING, _RANK = 1, 2, 5, 8, 11, 12  # of TrackDescriptor
_UNIT_NAME = 6  # of CounterDescriptor
_CATEGORY_IIDS, _ANNOTATIONS, _TYPE, _NAME_IID, _TRACK, _TEXT_NAME, _VALUE = 3, 4, 9, 10, 11, 23, 30  # of TrackEvent
_DOUBLE_VALUE, _FLOWS, _ENDING_FLOWS, _CORRELATION = 44, 47, 48, 52
_KEY_IID, _KEY, _INT, _STRING = 1, 10, 4, 6  # of DebugAnnotation
_CATEGORIES, _NAMES, _KEYS = 1, 2, 3  # of InternedData; each with an iid = 1 and a name = 2

_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4  # types of TrackEvent
_EXPLICIT = 3  # order of children
_CLEARED, _NEEDED = 1, 2  # incremental state
_ONLY = number(_SEQUENCE, 1)
_ROOT = 1 << 32  # uuid above all pids and tids


def write_perfetto(path: Path, tracks: Tracks, about: Mapping[str, object], *, by_microbatch: bool = True) -> None:
    """Writes a Perfetto trace.

    Args:
        path: Where to; compressed when the name ends in `.gz`. It is there only when it is whole.
        tracks: What it shows.
        about: What it says of itself: annotations of the first event, on the track that holds all.
        by_microbatch: Whether the slices of a microbatch share a colour; else those of a kind do.

    Raises:
        OutputError: The file cannot be written.
    """
    with packing(path) as file:
        file.write(b"".join(_declarations(tracks, about)))
        file.write(_about(about))
        for packets in perfetto_packets(tracks, by_microbatch=by_microbatch):
            file.write(packets)


def _packet(content: bytes) -> bytes:
    return data(_PACKET, content)


def _declarations(tracks: Tracks, about: Mapping[str, object]) -> Iterator[bytes]:
    yield _declared(_ROOT, _title(about), None, 0)
    below = len(tracks.tracks) + len(tracks.counters)  # of what else is in a group
    for rank, process in enumerate(tracks.processes):
        if process.within is None:
            yield _declared(process.pid, process.name, _ROOT, rank)
        else:
            parent, name = process.within
            yield _declared(process.pid, name, parent, below + rank)
    for rank, track in enumerate(tracks.tracks):
        yield _declared(track.tid, track.name, track.pid, rank)
    for rank, counter in enumerate(tracks.counters, start=len(tracks.tracks)):
        unit = data(_COUNTER, data(_UNIT_NAME, counter.unit))
        yield _declared(_counter_uuid(rank), counter.name, counter.pid, rank, unit)


def _title(about: Mapping[str, object]) -> str:
    """What the track that holds all is called."""
    sizes = [f"{about[name]} {name}" for name in ("ranks", "microbatches") if name in about]
    return ", ".join([str(about.get("schedule", "pipetrace")), *sizes])


def _counter_uuid(rank: int) -> int:
    return _ROOT + 1 + rank


def _declared(uuid: int, name: str, parent: int | None, rank: int, more: bytes = b"") -> bytes:
    where = number(_RANK, rank) if parent is None else number(_PARENT, parent) + number(_RANK, rank)
    content = number(_UUID, uuid) + data(_NAME, name) + where + number(_ORDERING, _EXPLICIT) + more
    return _packet(data(_DESCRIPTOR, content))


def perfetto_packets(tracks: Tracks, *, by_microbatch: bool = True) -> Iterator[bytes]:
    """The packets of counters, slices and arrows, many at a time; their tracks are declared elsewhere."""
    interned = _Interned()
    yield interned.begin()
    for rank, counter in enumerate(tracks.counters, start=len(tracks.tracks)):
        yield from _counter(counter, _counter_uuid(rank))
    uuids = np.array([track.tid for track in tracks.tracks], dtype=np.int64)
    for block in tracks.blocks():
        yield from _slices(block, uuids[block.track], interned, by_microbatch)


class _Interned:
    """Names that are written once and then referred to by number, and which of them are known."""

    def __init__(self) -> None:
        self._names: dict[bytes, int] = {}
        self._keys: dict[str, int] = {}
        self._new: list[bytes] = []
        self._colours = distinct_ids(0)

    def colours(self, colour: IntArray) -> IntArray:
        """Correlation ids, one for each colour; shape of `colour`."""
        if (most := int(colour.max(initial=0))) >= self._colours.size:
            self._colours = distinct_ids(2 * most + 1)
        return self._colours[colour]

    def begin(self) -> bytes:
        """The packet with which a sequence of packets begins."""
        entries = b"".join(
            data(_CATEGORIES, number(1, iid) + data(2, name)) for iid, name in enumerate(CATEGORIES, start=1)
        )
        return _packet(_ONLY + number(_FLAGS, _CLEARED) + data(_INTERNED, entries))

    def key(self, key: str) -> int:
        """The number of an annotation's key."""
        if key not in self._keys:
            self._keys[key] = len(self._keys) + 1
            self._new.append(data(_KEYS, number(1, self._keys[key]) + data(2, key)))
        return self._keys[key]

    def names(self, names: Sequence[bytes]) -> list[int]:
        """Numbers of names; 0 for those that have to be written out."""
        known = self._names
        for name in set(names).difference(known):
            if len(known) < _MOST_NAMES:
                known[name] = len(known) + 1
                self._new.append(data(_NAMES, number(1, known[name]) + data(2, name)))
        return [known.get(name, 0) for name in names]

    def declared(self) -> bytes:
        """The packet that makes known what is new."""
        if not self._new:
            return b""
        entries, self._new = b"".join(self._new), []
        return _packet(_ONLY + number(_FLAGS, _NEEDED) + data(_INTERNED, entries))


def _slices(block: Slices, uuid: IntArray, interned: _Interned, by_microbatch: bool) -> Iterator[bytes]:
    rows = len(block)
    event = [
        Literal(number(_TYPE, _BEGIN)),
        *numbers(_TRACK, uuid),
        *numbers(_CATEGORY_IIDS, block.lane + 1),
        *_name(block, interned),
    ]
    for arg in block.args:
        event += _annotation(arg, interned.key(arg.key), rows)
    if by_microbatch:
        event += numbers(_CORRELATION, interned.colours(block.colour), block.colour > 0)
    # Of what begins at one time the order in the file counts, which is not the arrows': these arrive when a slice ends.
    tied = block.arrives.at > block.start[block.arrives.row]
    event += _flows(_FLOWS, block.leaves, rows) + _flows(_ENDING_FLOWS, block.arrives.where(~tied), rows)
    begin = messages(
        _PACKET,
        [
            *numbers(_TIMESTAMP, block.start),
            Literal(_ONLY + number(_FLAGS, _NEEDED)),
            *messages(_TRACK_EVENT, event, rows),
        ],
        rows,
    )
    ends = [Literal(number(_TYPE, _END)), *numbers(_TRACK, uuid)]
    ends += _flows(_ENDING_FLOWS, block.arrives.where(tied), rows)
    end = messages(
        _PACKET, [*numbers(_TIMESTAMP, block.end), Literal(_ONLY), *messages(_TRACK_EVENT, ends, rows)], rows
    )
    yield interned.declared()
    yield from joined([*begin, *end], rows)


def _name(block: Slices, interned: _Interned) -> list[Cell]:
    names = apart(_cells(block.name), len(block))
    iid = np.array(interned.names(names), dtype=np.int64)
    if iid.all():
        return numbers(_NAME_IID, iid)
    out = iid == 0
    written = [name for name, is_out in zip(names, out.tolist(), strict=True) if is_out]
    word = Word(Table(written), np.where(out, np.cumsum(out) - 1, -1))
    return [*numbers(_NAME_IID, iid, ~out), *messages(_TEXT_NAME, [word], len(block), out)]


def _annotation(arg: Arg, key: int, rows: int) -> list[Cell]:
    value = (
        numbers(_INT, arg.value, arg.present)
        if isinstance(arg.value, np.ndarray)
        else messages(_STRING, only(_cells(arg.value), arg.present), rows, arg.present)
    )
    return messages(_ANNOTATIONS, [Literal(number(_KEY_IID, key), arg.present), *value], rows, arg.present)


def _flows(field: int, ends: Ends, rows: int) -> list[Cell]:
    """The numbers of the arrows that end in each slice: of each the first, the second, and so on."""
    cells: list[Cell] = []
    first, last = np.searchsorted(ends.row, (np.arange(rows), np.arange(1, rows + 1)))
    for nth in range(int((last - first).max(initial=0))):
        present: BoolArray = first + nth < last
        arrow = np.zeros(rows, dtype=np.int64)
        arrow[present] = ends.arrow[first[present] + nth] + 1
        cells += fixed64s(field, arrow, present)
    return cells


def _counter(counter: CounterTrack, uuid: int) -> Iterator[bytes]:
    time, value = counter.series.time, counter.series.value
    field = numbers(_VALUE, value) if counter.per == 1 else doubles(_DOUBLE_VALUE, value / counter.per)
    event = [Literal(number(_TYPE, _COUNT) + number(_TRACK, uuid)), *field]
    packet = [*numbers(_TIMESTAMP, time), Literal(_ONLY), *messages(_TRACK_EVENT, event, time.size)]
    yield from joined(messages(_PACKET, packet, time.size), time.size)


def _cells(text: Text) -> list[Cell]:
    cells: list[Cell] = []
    for piece in text:
        if isinstance(piece, str):
            cells.append(Literal(utf8(piece)))
        elif isinstance(piece, Choice):
            cells.append(Word(Table([utf8(word) for word in piece.words]), piece.index))
        else:
            cells += [
                Literal(utf8(piece.before), piece.present),
                Digits(piece.value, piece.present),
                Literal(utf8(piece.after), piece.present),
            ]
    return cells


def _about(about: Mapping[str, object]) -> bytes:
    """What the trace says of itself, as an event with annotations."""
    annotations = b""
    for key, value in about.items():
        if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
            said = number(_INT, value)
        else:
            said = data(_STRING, value if isinstance(value, str) else json_text(value))
        annotations += data(_ANNOTATIONS, data(_KEY, key) + said)
    event = number(_TYPE, _INSTANT) + number(_TRACK, _ROOT) + data(_TEXT_NAME, "about this trace") + annotations
    return _packet(number(_TIMESTAMP, 0) + _ONLY + data(_TRACK_EVENT, event))
