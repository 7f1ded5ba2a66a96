"""One trace file: exact times, and what is broken mended or named."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.errors import TraceError
from pipetrace.trace.load import TraceFile, load_trace
from pipetrace.trace.reading.events import Collector, Event
from tests.trace.recorded import micros

GOOD = b'{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [{"ph": "X", "name": "a", "ts": 1.5, "dur": 2}]}'


def write(tmp_path: Path, data: bytes, name: str = "rank0.json") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def found(trace: TraceFile) -> list[tuple[str, int, int]]:
    """Name, start and end of each event."""
    events = trace.events
    return [
        (events.names[name], start, end)
        for name, start, end in zip(events.name.tolist(), events.start.tolist(), events.end.tolist(), strict=True)
    ]


@given(st.lists(st.tuples(st.integers(0, 4 * 10**18), st.integers(0, 10**15)), min_size=1))
def test_times_are_exact(times: list[tuple[int, int]]) -> None:
    """As decimals always; as doubles below 2^43 µs, where torch's times lie; others are not taken as doubles."""
    for kind, most in ((Decimal, 4 * 10**18), (float, 2**43 * 1000 - 1), (str, 4 * 10**18)):
        fitting = [(start % (most + 1), length) for start, length in times]
        collector = Collector(base=7)
        events = [Event("X", "a", ts=kind(micros(start)), dur=kind(micros(length))) for start, length in fitting]
        assert collector.add(events)
        columns = collector.finish()
        assert [*zip(columns.start.tolist(), columns.end.tolist(), strict=True)] == [
            (start + 7, start + length + 7) for start, length in fitting
        ]
    late = Collector()
    assert not late.add([Event("X", "a", ts=2.0**43, dur=1)])
    assert len(late.finish()) == 0


def test_times_of_a_file_are_exact(tmp_path: Path) -> None:
    # As doubles these two are 1 ns off, or equal.
    events = (
        b'[{"ph":"X","name":"a","ts":8796093022207.999,"dur":0.001},{"ph":"X","name":"b","ts":1790857026000123.457}]'
    )
    trace = load_trace(write(tmp_path, b'{"baseTimeNanoseconds": "1000", "traceEvents": ' + events + b"}"))
    assert found(trace) == [
        ("a", 8_796_093_022_208_999, 8_796_093_022_209_000),
        ("b", 1_790_857_026_000_124_457, 1_790_857_026_000_124_457),
    ]


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
def test_compression_is_seen_by_content(tmp_path: Path, name: str) -> None:
    for data in (GOOD, gzip.compress(GOOD), gzip.compress(GOOD[:40]) + gzip.compress(GOOD[40:])):
        trace = load_trace(write(tmp_path, data, name))
        assert found(trace) == [("a", 1790857026000001500, 1790857026000003500)]
        assert trace.notes == ()


def test_a_bare_array_is_a_trace_too(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path, b' [{"ph": "X", "name": "a", "ts": "7", "dur": null}]'))
    assert found(trace) == [("a", 7000, 7000)]
    assert trace.notes == (
        "rank0.json: 1 complete events without a duration were taken to have none",
        "rank0.json: 1 times in strings were read as numbers",
    )


def test_odd_events_harm_nobody(tmp_path: Path) -> None:
    events = [
        {},
        {"ph": "X"},
        {"ph": "X", "name": None, "ts": 1},
        {"ph": "X", "name": 5, "ts": 1},
        {"ph": 3, "name": ["x"], "ts": 1, "args": {"deep": [{}]}},
        {"ph": "X", "name": "negative", "ts": 5, "dur": -3},
        {"ph": "X", "name": "huge", "ts": "1e999999"},
        {"ph": "X", "name": "huger", "ts": "1e999999999"},
        {"ph": "X", "name": "digits", "ts": "9" * 5000},
        {"ph": "X", "name": "none", "ts": "NaN"},
        {"ph": "X", "name": "long", "ts": 1, "dur": 1e300},
        {"ph": "i", "name": "instant", "ts": 1},
    ]
    trace = load_trace(write(tmp_path, json.dumps({"traceEvents": events, "host_name": 3, "pipetrace": []}).encode()))
    assert found(trace) == [("negative", 5000, 5000)]
    for words in (
        "5 events with an impossible time were left out",
        "3 complete events without a name or a start were left out",
        "2 events of no known kind were left out",
    ):
        assert any(words in note for note in trace.notes)
    assert (trace.host, trace.pipetrace, trace.distributed) == ("", {}, {})


def test_what_can_be_mended_is_mended_and_told(tmp_path: Path) -> None:
    bad = b'\xef\xbb\xbf{"x": NaN, "y": [-Infinity, inf, -nan], "s": "NaN \\" inf", "traceEvents": '
    bad += b'[{"ph": "X", "name": "a\xff NaN", "ts": 1, "dur": Infinity}]}'
    trace = load_trace(write(tmp_path, bad))
    assert found(trace) == [("a\ufffd NaN", 1000, 1000)]
    assert [note.split(": ")[1] for note in trace.notes] == [
        "a byte-order mark at the start was skipped",
        "1 numbers that were NaN or infinite were read as absent",
        "1 complete events without a duration were taken to have none",
        "1 pieces of text that are no UTF-8 were replaced",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"not json", "is no JSON"),
        (b"\x00\x01\xff\xfe binary", "is no JSON"),
        (b"3", "neither an object nor an array"),
        (b'"text"', "neither an object nor an array"),
        (b"null", "neither an object nor an array"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": 3}', "traceEvents"),
        (b'{"traceEvents": [3]}', "no event that can be read: no event at byte 17"),
        (GOOD[:-20], "is cut off before its first whole event: the JSON does not end (the data ends at byte 61)"),
        (gzip.compress(GOOD)[:-12], "the gzip data is cut off (the file ends at byte"),
        (gzip.compress(GOOD)[:-30], "the gzip data is cut off (the file ends at byte"),
        (gzip.compress(GOOD)[:-8] + b"12345678", "the gzip data is damaged"),
        (b"\x1f\x8bjunk that is no gzip", "the gzip data is damaged"),
        (b'{"baseTimeNanoseconds": "soon", "traceEvents": []}', "baseTimeNanoseconds 'soon' is no time"),
        (b'{"baseTimeNanoseconds": 1e300, "traceEvents": []}', "is no time"),
        (b'{"baseTimeNanoseconds": "' + b"9" * 5000 + b'", "traceEvents": []}', "is no time"),
        (b'{"baseTimeNanoseconds": "1_0", "traceEvents": []}', "'1_0' is no time"),
        (b'{"baseTimeNanoseconds": [1], "traceEvents": []}', "is no time"),
        (b"[" * 100_000, ""),
        (b'{"a":' * 100_000, ""),
    ],
)
def test_the_rest_is_refused_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "absent", "No such file"), (tmp_path, "directory"), (tmp_path / "a\0", "null")):
        with pytest.raises(TraceError, match=message):
            load_trace(path)


@given(st.binary(max_size=60), st.booleans())
@settings(deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, inside: bool) -> None:
    path = tmp_path_factory.mktemp("any") / "rank0.json"
    path.write_bytes(b'{"traceEvents": [' + data + b"]}" if inside else data)
    message = str(path)
    try:
        load_trace(path)
    except TraceError as error:
        message = error.message
    assert str(path) in message
    assert "\n" not in message


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """400,000 events of 56 MB stand in columns of 16 MB; the text is never held as a whole."""
    path = tmp_path / "rank0.json"
    line = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 5110859219155.958, "dur": 1.5, '
    line += b'"args": {"External id": 12345678}},\n'
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        for _ in range(400):
            file.write(line * 1000)
        file.write(line.rstrip(b",\n") + b"]}")
    code = (
        "import resource, sys; from pathlib import Path; from pipetrace.trace.load import load_trace\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "before = peak(); trace = load_trace(Path(sys.argv[1])); print(len(trace.events), peak() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=60)
    events, grown = map(int, ran.stdout.split())
    assert events == 400_001
    assert path.stat().st_size > 50e6
    assert grown < 60
