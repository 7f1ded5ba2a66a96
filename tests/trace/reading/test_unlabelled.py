"""What nothing labels, matched with a schedule's order: held against what the files say by other means."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.metrics import bubbles
from pipetrace.timeline import Lane
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.by_hand import cpu_1f1b, gpu_1f1b
from tests.trace.recorded import dump

TRACES = Path(__file__).parent.parent.parent / "data" / "traces"
CPU, GPU = TRACES / "1f1b_pp2_mb4_mlp", TRACES / "synthetic_gpu_1f1b_pp4_mb8"


def kinds(schedule: pipetrace.Schedule, rank: int) -> list[str]:
    return [str(action)[1] for action in schedule.actions(rank)]


def test_a_cpu_run_without_labels() -> None:
    recording = read_recording([CPU], pipetrace.build("1f1b", 2, 4))
    (timeline,) = recording.steps
    assert recording.missing == ()
    for rank, of in enumerate(cpu_1f1b(CPU)):
        assert [tile.kind for tile in of.tiles] == kinds(pipetrace.build("1f1b", 2, 4), rank)
    # Every transfer is known, and none arrives before it was made.
    for lane in (Lane.SEND, Lane.RECV):
        assert int((timeline.lane == lane).sum()) == 8
    for tile in timeline.where(timeline.lane == Lane.RECV):
        assert tile.posted is not None
        assert tile.start < tile.end
    found = recording.found[0].match
    assert found is not None
    assert found.confidence > 0.97


def test_a_gpu_run_without_labels() -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    recording = read_recording([GPU], schedule)
    (timeline,) = recording.steps
    assert recording.missing == ()
    of = bubbles(timeline)
    assert of.makespan == 13_098_000
    for rank, by_hand in enumerate(gpu_1f1b(GPU, 4)):
        assert [tile.kind for tile in by_hand.tiles] == kinds(schedule, rank)
        assert (of.busy[rank], of.global_idle[rank]) == (7_168_000, 5_930_000)  # as the folder was made
    # Data arrives 200 µs after it was made; the kernel ends 1 µs before the compute that needs it.
    for tile in timeline.where((timeline.lane == Lane.RECV) & (timeline.waited >= 0)):
        assert tile.duration == 201_000
    assert any("may still be off by" in note for note in recording.notes)


def without_labels(source: Path, folder: Path) -> None:
    for file in source.glob("rank*.json.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith(("Forward ", "Backward "))]
        (folder / file.name).write_bytes(gzip.compress(dump(trace).encode()))


def test_labels_that_are_taken_away_are_found_again(tmp_path: Path) -> None:
    without_labels(TRACES / "gpipe_pp2_mb4_mlp", tmp_path)
    schedule = pipetrace.build("gpipe", 2, 4)
    (labelled,) = read_recording([TRACES / "gpipe_pp2_mb4_mlp"]).steps
    (matched,) = read_recording([tmp_path], schedule).steps
    compared = 0
    for tile in labelled.where(labelled.is_compute):
        found = matched.find(tile.action)  # type: ignore[arg-type]
        assert found is not None
        start, end = found.start + matched.epoch - labelled.epoch, found.end + matched.epoch - labelled.epoch
        overlap = min(end, tile.end) - max(start, tile.start)
        # The label has Python around the operations in it; a last stage's loss stands behind its label.
        assert overlap > 0.7 * max(tile.duration, found.duration)
        compared += 1
    assert compared == 16


@pytest.mark.parametrize(
    ("folder", "name", "ranks", "microbatches", "message"),
    [
        (CPU, "1f1b", 2, 5, "rank 0 received 4 times; a step of 1f1b would have 5 there"),
        (CPU, "gpipe", 2, 4, "is not in the order of gpipe"),
        (CPU, "zb-h1", 2, 4, "is not in the order of zb-h1"),
        (CPU, "1f1b", 4, 4, "the schedule has 4 ranks, the recording 2"),
        (CPU, "interleaved", 2, 4, "a step of interleaved would have"),
        (CPU, "dualpipev", 2, 4, "overlaps"),
        (GPU, "1f1b", 4, 4, "is not in the order of 1f1b"),
        (GPU, "gpipe", 4, 8, "does not look like gpipe"),
        (GPU, "zb-h1", 4, 8, "is not in the order of zb-h1"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, name: str, ranks: int, microbatches: int, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_recording([folder], pipetrace.build(name, ranks, microbatches))
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_a_folder_with_labels_needs_no_schedule_and_takes_none() -> None:
    folder = TRACES / "zbv_pp2_mb4_mlp"
    alone, told = read_recording([folder]), read_recording([folder], pipetrace.build("1f1b", 2, 3))
    assert [t.action for t in alone.steps[0]] == [t.action for t in told.steps[0]]


def test_several_steps_in_a_trace_that_marks_none(tmp_path: Path) -> None:
    """The schedule's own period cuts them: the same step twice, a second apart."""
    for file in CPU.glob("rank*.json.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        events = [e for e in trace["traceEvents"] if e["name"] != "STEP" and e["ph"] == "X"]
        later = [e | {"ts": round(e["ts"] + 1e6, 3)} for e in events]
        trace["traceEvents"] = events + later
        (tmp_path / file.name).write_bytes(gzip.compress(dump(trace).encode()))
    recording = read_recording([tmp_path], pipetrace.build("1f1b", 2, 4))
    (once,) = read_recording([CPU], pipetrace.build("1f1b", 2, 4)).steps
    assert recording.step_names == ("step 0", "step 1")
    for step in recording.steps:
        one, two = once.from_first_action(), step.from_first_action()
        assert (one.start == two.start).all()
        assert (one.end == two.end).all()


def test_without_a_schedule_nothing_is_said_of_each_step() -> None:
    """That nothing is labelled is told once; what each transfer carried follows from it."""
    recording = read_recording([CPU])
    assert any("no action is labelled on ranks 0, 1" in line for line in recording.missing)
    assert not any("could not be told" in note for note in recording.notes)
