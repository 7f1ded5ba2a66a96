"""Traces that are reduced where they lie stand for themselves; many are read at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.timeline import COLUMNS
from pipetrace.trace.find import find_traces
from pipetrace.trace.rank_reading import How, read_files
from pipetrace.trace.rank_steps import Reading
from pipetrace.trace.reading.wanted import wanted_of
from pipetrace.trace.reduced import SUFFIX, read_reading, write_reading
from pipetrace.trace.torch_profiler import Recording, read_recording

TRACES = Path(__file__).parent.parent / "data" / "traces"


def same(one: Recording, other: Recording) -> None:
    assert one.found == other.found
    assert (one.notes, one.missing, one.step_names, one.ranks) == (
        other.notes,
        other.missing,
        other.step_names,
        other.ranks,
    )
    for left, right in zip(one.steps, other.steps, strict=True):
        for column in COLUMNS:
            assert (getattr(left, column) == getattr(right, column)).all()


@pytest.mark.parametrize(
    ("folder", "name", "ranks", "microbatches"),
    [
        ("rt-zbh1_pp4_mb8_mlp", "", 0, 0),
        ("gpipe_pp2_mb4_mlp", "", 0, 0),
        ("1f1b_pp2_mb4_mlp", "1f1b", 2, 4),
        ("synthetic_gpu_1f1b_pp4_mb8", "1f1b", 4, 8),
    ],
)
def test_a_reduced_trace_stands_for_the_trace(
    folder: str, name: str, ranks: int, microbatches: int, tmp_path: Path
) -> None:
    schedule = pipetrace.build(name, ranks, microbatches) if name else None
    how = How(Reading() if schedule is None else Reading(schedule=schedule.name, wanted=wanted_of(schedule)))
    files = [file for asked in find_traces([TRACES / folder]) for file in asked.files]
    for readings in read_files(files, how):
        (reading,) = readings
        path = write_reading(tmp_path, reading)
        assert path.name == f"rank{reading.rank}{SUFFIX}"
        assert path.stat().st_size < 20_000
        assert read_reading(path) == reading
    same(read_recording([tmp_path], schedule), read_recording([TRACES / folder], schedule))


def test_processes_read_what_one_does() -> None:
    folder = TRACES / "rt-zbh1_pp4_mb8_mlp"
    told: list[int] = []
    same(read_recording([folder], jobs=2, progress=told.append), read_recording([folder]))
    assert sum(told) == sum(file.stat().st_size for file in folder.glob("*.gz"))


def test_an_error_in_a_process_is_told_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes((TRACES / "gpipe_pp2_mb4_mlp" / "rank0.json.gz").read_bytes())
    (tmp_path / "rank1.json").write_text("no json")
    with pytest.raises(TraceError, match=r"rank1.json is no JSON") as caught:
        read_recording([tmp_path], jobs=2)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"junk", "Not a gzipped file"),
        (gzip.compress(b"{}"), "schema None"),
        (gzip.compress(b"[]"), "damaged"),
        (gzip.compress(json.dumps({"pipetrace_reading": 99}).encode()), "written with schema 99"),
        (gzip.compress(json.dumps({"pipetrace_reading": 1}).encode()), "damaged"),
        (
            gzip.compress(b'{"pipetrace_reading": 1, "path": "x", "rank": 0, "steps": {}}'),
            "of rank 0, but has steps of",
        ),
        (gzip.compress(b'{"pipetrace_reading": 1, "path": "x"}')[:-3], "damaged"),
    ],
)
def test_what_is_no_reading(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / f"rank0{SUFFIX}").write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_recording([tmp_path])
    assert "\n" not in caught.value.message
