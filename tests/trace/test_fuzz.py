"""Real traces, cut, flipped and spliced: a timeline with a word on what was mended, or one clear line.

Never a traceback, and never a figure that changes without a word: where the damaged file is no JSON any more (or no
gzip data), figures are those of the whole file, or notes say what is not as it was. A file that is still JSON is
another trace, of which nobody can tell that it is damaged; what contradicts itself in it (an action without its other
half, labels that stand twice) is told all the same.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.trace.torch_profiler import Recording, read_recording
from tests.trace.gpu import write_gpu_run

TRACES = Path(__file__).parent.parent / "data" / "traces"
CASES = (4000, 2000, 2000, 2000)  # of each kind of run, 10,000 together
WORDS = (b"NaN", b"-Infinity", b"\x00", b'"', b"\\", b"}", b"]", b",", b"{", b"[", b"\xff")

Reader = Callable[[Path], Recording]


def reader(schedule: Schedule | None) -> Reader:
    return lambda folder: read_recording([folder], schedule)


def small(source: Path, folder: Path) -> None:
    """A recorded run as far as its labels and transfers go, laid out as torch lays it out."""
    for file in source.glob("rank*.json.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        wanted = ("PP:", "Forward", "Backward", "gloo:", "STEP", "ProfilerStep")
        kept = [e for e in trace["traceEvents"] if e["name"].startswith(wanted)]
        trace["traceEvents"] = kept[:: 1 if len(kept) < 80 else 2]
        (folder / file.name.replace(".gz", "")).write_bytes(json.dumps(trace, indent=2).encode())


def recorded(folder: Path) -> list[tuple[str, Path, Reader]]:
    """Small runs of every kind: torch's runtime and GPipe, a GPU run with labels, and one without."""
    runs: list[tuple[str, Path, Reader]] = []
    for name in ("gpipe_pp2_mb4_mlp", "zbv_pp2_mb4_mlp"):
        (folder / name).mkdir()
        small(TRACES / name, folder / name)
        runs.append((name, folder / name, reader(None)))
    schedule = pipetrace.build("1f1b", 2, 2)
    ideal = pipetrace.simulate(schedule, pipetrace.parse_costs("F=1,B=2", p2p=100_000))
    for name, label in (("gpu", "PP:{action}"), ("gpu-unlabelled", None)):
        (folder / name).mkdir()
        write_gpu_run(folder / name, ideal, schedule, label=label)
        for file in (folder / name).iterdir():
            file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
            file.unlink()
        runs.append((name, folder / name, reader(schedule)))
    return runs


def damaged(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """The data with one to three things done to it."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 3, 20, 150, 1000))
        match chance.randrange(7):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + length :]
            case 3:
                begin = chance.randrange(len(other))
                data = data[:at] + other[begin : begin + length] + data[at:]
            case 4:
                begin = chance.randrange(len(data) + 1)
                data = data[:at] + data[begin : begin + length] + data[at:]
            case 5:
                word = chance.choice(
                    (b"NaN", b"-Infinity", b"\x00", b'"', b"\\", b"}", b"]", b",", b"{", b"[", b"\xff")
                )
                data = data[:at] + word + data[at:]
            case _:
                bit = 1 << chance.randrange(8)
                data = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] if at < len(data) else data
    return data


def figures(recording: Recording) -> Any:
    return (
        recording.ranks,
        [
            (name, sorted((str(t.action), t.rank, t.start + step.epoch, t.end + step.epoch) for t in step))
            for name, step in zip(recording.step_names, recording.steps, strict=True)
        ],
        [dict(found.counts) for found in recording.found],
    )


def words(recording: Recording) -> set[str]:
    return {*recording.notes, *recording.missing}


def is_json(data: bytes) -> bool:
    def no_number(text: str) -> float:
        raise ValueError(text)

    try:
        json.loads(data.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError):
        return False
    return True


def read_or_refused(read: Reader, folder: Path) -> Recording | str:
    try:
        return read(folder)
    except TraceError as error:
        return error.message


@pytest.mark.parametrize("part", range(4))
def test_damaged_traces(part: int, tmp_path: Path) -> None:
    chance = random.Random(part)
    name, folder, read = recorded(tmp_path)[part]
    files = sorted(folder.iterdir())
    whole = [file.read_bytes() for file in files]
    outcomes = {"read": 0, "told": 0, "refused": 0}
    # Most cases are of one rank's trace alone, which is twice as fast.
    for beside, cases in ((True, CASES[part] // 4), (False, CASES[part] * 3 // 4)):
        if not beside:
            files[1].unlink()
        sound = read(folder)
        right, told = figures(sound), words(sound)
        for case in range(cases):
            which = chance.randrange(len(files)) if beside else 0
            packed = chance.random() < 0.2
            data = gzip.compress(whole[which], 1) if packed else whole[which]
            bad = damaged(data, whole[1 - which], chance)
            files[which].write_bytes(bad)
            recording = read_or_refused(read, folder)
            if isinstance(recording, str):
                outcomes["refused"] += 1
                assert "\n" not in recording, (name, case)
                assert len(recording) < 600, (name, case)
            elif figures(recording) == right:
                outcomes["read"] += 1
            else:
                outcomes["told"] += 1
                silent = words(recording) <= told
                assert not silent or (not packed and is_json(bad)), (name, case)
            files[which].write_bytes(whole[which])
    # Each of the three comes about, so that none of them is tested in name only.
    assert min(outcomes.values()) > CASES[part] // 50, outcomes
