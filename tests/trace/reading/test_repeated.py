"""Keys that stand twice in one object."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetrace.trace.load import load_trace

EVENT = b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "args": {"ts": 3, "name": "b"}}'
NOTE = "rank0.json: {} keys stand twice in one object, and the last was taken"


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b'{"traceEvents": [%s, %s]}' % (EVENT, EVENT), 0),
        (b'{"traceEvents": [%s, {"ph": "M", "name": "process_name", "args": {"name": "x"}}]}' % EVENT, 0),
        (b'{"traceEvents": [%s, %s]}' % (EVENT, EVENT.replace(b'"ts": 1', b'"ts": 5, "ts": 1')), 1),
        (b'{"traceEvents": [%s, %s]}' % (EVENT, EVENT.replace(b'"dur": 2', b'"dur": 2, "dur": 2')), 1),
        (b'{"traceEvents": [%s, %s]}' % (EVENT, EVENT.replace(b'"cat"', b'"name": "z", "cat"')), 1),
        # As it is read event by event, where one of them is no JSON.
        (b'{"traceEvents": [{"ph": }, %s]}' % EVENT.replace(b'"ts": 1', b'"ts": 5, "ts": 1'), 1),
        (b'{"host_name": "a", "host_name": "b", "traceEvents": [%s]}' % EVENT, 1),
    ],
)
def test_keys_that_stand_twice_are_told(data: bytes, count: int, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(data)
    notes = load_trace(tmp_path / "rank0.json").notes
    assert [note for note in notes if "twice" in note] == ([NOTE.format(count)] if count else [])


@pytest.mark.parametrize("key", [b"baseTimeNanosecond", b"distrbutedInfo", b"host-name"])
def test_keys_that_are_nearly_known_are_told(key: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(b'{"%s": {}, "traceEvents": [%s]}' % (key, EVENT))
    (note,) = load_trace(tmp_path / "rank0.json").notes
    assert note == "rank0.json: 1 keys that are called nearly as known ones were left out"
