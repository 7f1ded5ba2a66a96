"""Real traces, cut, flipped and spliced: a timeline with a word on what was mended, or one clear line.

Never a traceback, and never a figure that changes without a word. What nobody can tell is a number of which a digit is
another, with all of the trace as consistent as before: this alone may change figures in silence, and how often it does
is printed (`pytest -s`).
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.trace.torch_profiler import Recording, read_recording
from tests.trace.gpu import write_gpu_run

TRACES = Path(__file__).parent.parent / "data" / "traces"
WORDS = (b"NaN", b"-Infinity", b"\x00", b'"', b"\\", b"}", b"]", b",", b"{", b"[", b"\xff")

Damage = Callable[[bytes, bytes, random.Random], bytes]


def of_folder(name: str, folder: Path, *, whole: bool) -> None:
    """A recorded run, laid out as torch lays it out; not `whole`: as far as its labels and transfers go."""
    for file in (TRACES / name).glob("rank[01].json.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        wanted = ("PP:", "Forward", "Backward", "gloo:", "c10d::", "STEP", "ProfilerStep")
        trace["traceEvents"] = [e for e in trace["traceEvents"] if whole or e["name"].startswith(wanted)]
        (folder / file.name.replace(".gz", "")).write_bytes(json.dumps(trace, indent=2).encode())


def made_on_a_gpu(folder: Path, *, label: str | None) -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    ideal = pipetrace.simulate(schedule, pipetrace.parse_costs("F=1,B=2", p2p=100_000))
    write_gpu_run(folder, ideal, schedule, label=label)
    for file in list(folder.iterdir()):
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()


@dataclass(frozen=True)
class Run:
    """A kind of run, how many cases of it are looked at, and which share of wrong digits may stay unseen at most."""

    name: str
    write: Callable[[Path], None]
    cases: int
    digits: int
    silent: float = 0.1
    schedule: tuple[str, int, int] | None = None

    def read(self, folder: Path) -> Recording:
        return read_recording([folder], None if self.schedule is None else pipetrace.build(*self.schedule))


RUNS = [
    Run("gpipe, labels", partial(of_folder, "gpipe_pp2_mb4_mlp", whole=False), 2600, 200, 0.35),
    Run("gpipe", partial(of_folder, "gpipe_pp2_mb4_mlp", whole=True), 60, 250),
    Run("zbv, labels", partial(of_folder, "zbv_pp2_mb4_mlp", whole=False), 1400, 100, 0.35),
    Run("zbv", partial(of_folder, "zbv_pp2_mb4_mlp", whole=True), 40, 200),
    Run("rt-zbh1, labels", partial(of_folder, "rt-zbh1_pp4_mb8_mlp", whole=False), 1400, 100, 0.35),
    Run("rt-zbh1", partial(of_folder, "rt-zbh1_pp4_mb8_mlp", whole=True), 40, 200),
    Run("1f1b, no labels", partial(of_folder, "1f1b_pp2_mb4_mlp", whole=True), 160, 250, 0.1, ("1f1b", 2, 4)),
    Run("GPU, no labels", partial(of_folder, "synthetic_gpu_1f1b_pp4_mb8", whole=True), 200, 250, 0.1, ("1f1b", 4, 8)),
    Run("GPU, small, labels", partial(made_on_a_gpu, label="PP:{action}"), 1200, 150, 0.35, ("1f1b", 2, 2)),
    Run("GPU, small, no labels", partial(made_on_a_gpu, label=None), 1100, 100, 0.35, ("1f1b", 2, 2)),
]


def test_there_are_ten_thousand_cases() -> None:
    assert sum(run.cases + run.digits for run in RUNS) == 10_000


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
                data = data[:at] + chance.choice(WORDS) + data[at:]
            case _:
                bit = 1 << chance.randrange(8)
                data = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] if at < len(data) else data
    return data


def with_another_digit(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """The data with a digit of a time changed: what a number is cannot be seen from within it."""
    times = [match.span(1) for match in re.finditer(rb'"(?:ts|dur)": ([0-9.]+)', data)]
    first, last = chance.choice(times)
    at = chance.choice([place for place in range(first, last) if data[place : place + 1] != b"."])
    return data[:at] + b"%d" % ((int(data[at : at + 1]) + chance.randint(1, 9)) % 10) + data[at + 1 :]


def figures(recording: Recording) -> Any:
    """All figures but the moment at which the whole took place."""
    return (
        recording.ranks,
        [
            (
                name,
                [[str(t.action), t.rank, t.lane, t.start, t.end, t.posted, t.waited] for t in step.from_first_action()],
            )
            for name, step in zip(recording.step_names, recording.steps, strict=True)
        ],
        [(found.rank, dict(found.counts), found.transfers, found.kernels) for found in recording.found],
    )


def words(recording: Recording) -> set[str]:
    return {*recording.notes, *recording.missing}


def differs_in_numbers_only(data: bytes, whole: bytes) -> bool:
    """Whether some JSON is still JSON, and nothing in it but numbers is another."""

    def no_number(text: str) -> float:
        raise ValueError(text)

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(same, one, other))
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers or one == other

    try:
        return same(json.loads(data.decode("utf-8"), parse_constant=no_number), json.loads(whole))
    except (ValueError, RecursionError):
        return False


def read_or_refused(run: Run, folder: Path) -> Recording | str:
    try:
        return run.read(folder)
    except TraceError as error:
        return error.message


def looked_at(
    run: Run, folder: Path, *, beside: bool, cases: int, damage: Damage, chance: random.Random
) -> Counter[str]:
    """How cases came out: the figures as they were, others with a word, none, or others without a word."""
    files = sorted(folder.iterdir())
    whole = [file.read_bytes() for file in files]
    if not beside:
        files[1].unlink()  # most cases are of one rank's trace alone, which is twice as fast
    sound = run.read(folder)
    right, told = figures(sound), words(sound)
    outcomes: Counter[str] = Counter()
    for case in range(cases):
        which = chance.randrange(2) if beside else 0
        packed = damage is damaged and chance.random() < 0.2
        data = gzip.compress(whole[which], 1) if packed else whole[which]
        bad = damage(data, whole[1 - which], chance)
        files[which].write_bytes(bad)
        recording = read_or_refused(run, folder)
        if isinstance(recording, str):
            outcomes["refused"] += 1
            assert "\n" not in recording, (run.name, case)
            assert len(recording) < 600, (run.name, case)
        elif figures(recording) == right:
            outcomes["as it was"] += 1
        elif words(recording) <= told:
            outcomes["silent"] += 1
            assert not packed, (run.name, case)
            assert differs_in_numbers_only(bad, whole[which]), (run.name, case)
        else:
            outcomes["told"] += 1
        files[which].write_bytes(whole[which])
    for file, data in zip(files, whole, strict=True):
        file.write_bytes(data)
    return outcomes


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_damaged_traces(run: Run, tmp_path: Path) -> None:
    chance = random.Random(run.name)
    run.write(tmp_path)
    outcomes: Counter[str] = Counter()
    for beside, cases in ((True, run.cases // 4), (False, run.cases - run.cases // 4)):
        outcomes += looked_at(run, tmp_path, beside=beside, cases=cases, damage=damaged, chance=chance)
    # Each of these comes about, so that none of them is tested in name only.
    assert outcomes["as it was"]
    assert outcomes["told"]
    assert outcomes["refused"] or run.cases < 100
    assert outcomes["silent"] <= run.cases // 50
    print(f"\n{run.name}: damaged: {dict(outcomes)}")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_times_with_another_digit(run: Run, tmp_path: Path) -> None:
    chance = random.Random(run.name)
    run.write(tmp_path)
    of = looked_at(run, tmp_path, beside=True, cases=run.digits, damage=with_another_digit, chance=chance)
    changed = of["told"] + of["refused"] + of["silent"]
    print(f"\n{run.name}: a digit of a time: {dict(of)}, in silence {of['silent']} of {changed} that change figures")
    assert of["told"]
    # Where the operations are recorded too, most of these contradict something.
    assert of["silent"] <= run.digits * run.silent
