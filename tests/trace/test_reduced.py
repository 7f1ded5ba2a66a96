"""Traces that are reduced where they lie stand for themselves; many are read at once."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.report.recording import recording_summary
from pipetrace.timeline import COLUMNS, Lane
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


def packed(content: Any, schema: Any = 2) -> bytes:
    """A file as `write_reading` would write it of a content."""
    text = json.dumps(content).encode()
    head = json.dumps({"pipetrace_reading": schema, "sha256": hashlib.sha256(text).hexdigest()}).encode()
    return gzip.compress(head[:-1] + b', "content": ' + text + b"}", 1)


EMPTY = {"path": "x", "rank": 0, "steps": {"0": {"style": "none", "steps": {}}}}


def test_a_reading_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / f"rank0{SUFFIX}").write_bytes(packed(EMPTY))
    assert read_reading(tmp_path / f"rank0{SUFFIX}").rank == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"junk", "is damaged: Not a gzipped file"),
        (packed(EMPTY)[:-8] + bytes(8), "is damaged: CRC check failed"),
        (packed(EMPTY)[:20] + b"\xff" + packed(EMPTY)[21:], "is damaged"),
        (gzip.compress(b"{}"), "written with no schema"),
        (gzip.compress(b"[]"), "damaged"),
        (packed(EMPTY, 99), "written with schema 99, this pipetrace reads schema 2"),
        (packed(EMPTY, "\x1b\n"), "written with schema"),
        (gzip.compress(json.dumps({"pipetrace_reading": 2}).encode()), "damaged"),
        (gzip.compress(gzip.decompress(packed(EMPTY)).replace(b'"x"', b'"y"')), "what stands in it is not what was"),
        (packed(EMPTY | {"steps": {}}), "of rank 0, but has steps of"),
        (packed(EMPTY | {"rank": -1}), "of rank -1 of None"),
        (packed(EMPTY | {"world": 0}), "of rank 0 of 0"),
        (packed(EMPTY | {"group": [0, 1 << 70]}), "its process group is"),
        (packed(EMPTY | {"is_shared": True, "steps": {"1": EMPTY["steps"]}}), "damaged"),
        (packed(EMPTY)[:-3], "damaged"),
        (gzip.compress(bytes(300 << 20), 1), "unzips to more than"),
    ],
    ids=lambda of: of if isinstance(of, str) else "",
)
def test_what_is_no_reading(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / f"rank0{SUFFIX}").write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        read_recording([tmp_path])
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()


def numbers_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers, those of keys that are numbers too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(key, str) and key.isdigit():
            yield (*place, key, None)
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            yield (*place, key)
        yield from numbers_in(inner, (*place, key))


def changed(content: Any, place: tuple[Any, ...], to: Any) -> Any:
    content = copy.deepcopy(content)
    *path, last = place
    if last is None:
        *path, last = path
        at = reduce(lambda value, key: value[key], path, content)
        at[str(to)] = at.pop(last)
    else:
        reduce(lambda value, key: value[key], path, content)[last] = to
    return content


def read_or_refused(folder: Path, schedule: pipetrace.Schedule | None) -> Recording | str:
    try:
        return read_recording([folder], schedule)
    except TraceError as error:
        return error.message


@pytest.mark.parametrize(("folder", "name"), [("rt-zbh1_pp4_mb8_mlp", ""), ("synthetic_gpu_1f1b_pp4_mb8", "1f1b")])
def test_every_number_of_a_reading_is_looked_at(folder: str, name: str, tmp_path: Path) -> None:
    """With a sum that is right, as a file made by hand has: refused in a line, or taken as it stands."""
    schedule = pipetrace.build(name, 4, 8) if name else None
    how = How(Reading() if schedule is None else Reading(schedule=schedule.name, wanted=wanted_of(schedule)))
    for (reading,) in read_files(sorted((TRACES / folder).glob("rank*")), how):
        write_reading(tmp_path, reading)
    path = tmp_path / f"rank1{SUFFIX}"
    content = json.loads(gzip.decompress(path.read_bytes()))["content"]
    places = list(numbers_in(content))
    assert len(places) > 200
    outcomes = {"refused": 0, "read": 0}
    chance = random.Random(0)
    for place in chance.sample(places, 200):
        value = reduce(lambda at, key: at if key is None else at[key], place, content)
        near = value + chance.choice((1, -1)) if isinstance(value, int) else 7
        for to in (near, chance.choice((31, -1, -(10**6), 1 << 59, 1 << 63, 1 << 80, 0.5, None, "7", 7))):
            path.write_bytes(packed(changed(content, place, to)))
            recording = read_or_refused(tmp_path, schedule)
            if isinstance(recording, str):
                outcomes["refused"] += 1
                assert "\n" not in recording, (place, to)
                assert "rank" in recording, (place, to)
                continue
            outcomes["read"] += 1
            recording_summary(recording)
            for step in recording.steps:
                assert (step.end >= step.start).all(), (place, to)
                assert set(step.lane.tolist()) <= set(map(int, Lane)), (place, to)
    assert min(outcomes.values()) > 50, outcomes
