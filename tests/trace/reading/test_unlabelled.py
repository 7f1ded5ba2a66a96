"""What nothing labels, matched with a schedule's order: held against what the files say by other means."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.errors import TraceError
from pipetrace.metrics import bubbles
from pipetrace.timeline import Lane
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump

TRACES = Path(__file__).parent.parent.parent / "data" / "traces"
CPU, GPU = TRACES / "1f1b_pp2_mb4_mlp", TRACES / "synthetic_gpu_1f1b_pp4_mb8"


def raw(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def ns(micros: float) -> int:
    return round(micros * 1000)


def kinds(schedule: pipetrace.Schedule, rank: int) -> list[str]:
    return [str(action)[1] for action in schedule.actions(rank)]


def idle_of(tiles: list[tuple[int, int]]) -> tuple[int, int]:
    """Busy time and span of tiles that do not overlap."""
    return sum(end - start for start, end in tiles), max(end for _, end in tiles) - min(start for start, _ in tiles)


def cpu_tiles(path: Path) -> list[tuple[str, int, int]]:
    """Forwards from their first linear to what follows the last op of the model; backwards by what autograd ran."""
    tiles: list[tuple[str, int, int]] = []
    ends = {0: "aten::detach", 1: "aten::ones_like"}[int(path.name[4])]
    inside = 0
    for event in sorted(raw(path), key=lambda e: (e["ts"], -e["dur"])):
        name, start, end = event["name"], ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
        if event["cat"] != "cpu_op" or start < inside:
            continue
        inside = end
        if name.startswith("autograd::engine"):
            if tiles[-1][0] == "B":
                tiles[-1] = "B", tiles[-1][1], end
            else:
                tiles.append(("B", start, end))
        elif name == "aten::linear" and (not tiles or tiles[-1][0] != "F"):
            tiles.append(("F", start, end))
        elif name == ends:
            tiles[-1] = "F", tiles[-1][1], end
            tiles.append(("", 0, 0))
        elif name.startswith("c10d::recv") and tiles and tiles[-1][0] == "B":
            tiles.append(("", 0, 0))
    return [tile for tile in tiles if tile[0]]


def test_a_cpu_run_without_labels() -> None:
    recording = read_recording([CPU], pipetrace.build("1f1b", 2, 4))
    (timeline,) = recording.steps
    assert recording.missing == ()
    by_hand = [cpu_tiles(CPU / f"rank{rank}.json.gz") for rank in range(2)]
    zero = min(start for tiles in by_hand for _, start, _ in tiles)
    makespan = max(end for tiles in by_hand for _, _, end in tiles) - zero
    of = bubbles(timeline)
    assert of.makespan == makespan
    for rank, tiles in enumerate(by_hand):
        assert [kind for kind, _, _ in tiles] == kinds(pipetrace.build("1f1b", 2, 4), rank)
        mine = timeline.from_first_action()
        mine = mine.where(mine.is_compute & (mine.rank == rank))
        assert [*zip(mine.start.tolist(), mine.end.tolist(), strict=True)] == [
            (s - zero, e - zero) for _, s, e in tiles
        ]
        busy, span = idle_of([(start, end) for _, start, end in tiles])
        assert (of.busy[rank], of.global_idle[rank], of.in_span_idle[rank]) == (busy, makespan - busy, span - busy)
    # Every transfer is known, and none arrives before it was made.
    for lane in (Lane.SEND, Lane.RECV):
        assert int((timeline.lane == lane).sum()) == 8
    for tile in timeline.where(timeline.lane == Lane.RECV):
        assert tile.posted is not None
        assert tile.start < tile.end
    found = recording.found[0].match
    assert found is not None
    assert found.confidence > 0.97


def gpu_tiles(path: Path) -> list[tuple[str, int, int]]:
    """Three kernels that the main thread launched are a forward, six of autograd's thread a backward."""
    events = raw(path)
    thread = {e["args"]["correlation"]: e["tid"] for e in events if e["cat"] == "cuda_runtime"}
    queues: dict[int, list[tuple[int, int]]] = defaultdict(list)
    tiles = []
    for kernel in sorted((e for e in events if e["cat"] == "kernel" and e["tid"] == 7), key=lambda e: e["ts"]):
        launcher = thread[kernel["args"]["correlation"]]
        queues[launcher].append((ns(kernel["ts"]), ns(kernel["ts"]) + ns(kernel["dur"])))
        if len(queues[launcher]) == {1: 3, 2: 6}[launcher]:
            tiles.append(("F" if launcher == 1 else "B", queues[launcher][0][0], queues[launcher][-1][1]))
            queues[launcher].clear()
    return tiles


def test_a_gpu_run_without_labels() -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    recording = read_recording([GPU], schedule)
    (timeline,) = recording.steps
    assert recording.missing == ()
    of = bubbles(timeline)
    assert of.makespan == 13_098_000
    for rank in range(4):
        tiles = gpu_tiles(GPU / f"rank{rank}.json.gz")
        assert [kind for kind, _, _ in tiles] == kinds(schedule, rank)
        mine = timeline.where(timeline.is_compute & (timeline.rank == rank))
        ours = [*zip((mine.start + timeline.epoch).tolist(), (mine.end + timeline.epoch).tolist(), strict=True)]
        assert ours == [(start, end) for _, start, end in tiles]
        busy, _ = idle_of([(start, end) for _, start, end in tiles])
        assert (of.busy[rank], of.global_idle[rank]) == (busy, 13_098_000 - busy) == (7_168_000, 5_930_000)
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
