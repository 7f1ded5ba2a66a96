"""GPU traces of known truth: kernels go to the right actions, and receives are split into wait and transfer."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipetrace
from pipetrace.costs import Costs
from pipetrace.errors import TraceError
from pipetrace.timeline import Lane
from pipetrace.trace.labels import LabelStyle
from pipetrace.trace.torch_profiler import Recording, read_recording
from tests.trace.gpu import NEW, OLD, Truth, compute_times, write_gpu_run

COSTS = Costs(default=pipetrace.StageCosts(301_000, 290_000, 313_000), p2p=200_001)


def run(folder: Path, name: str = "1f1b", ranks: int = 3, microbatches: int = 5, **more: object) -> Truth:
    schedule = pipetrace.build(name, ranks, microbatches)
    return write_gpu_run(folder, pipetrace.simulate(schedule, COSTS), schedule, **more)  # type: ignore[arg-type]


def check(recording: Recording, truth: Truth) -> None:
    (timeline,) = recording.steps
    assert compute_times(timeline) == compute_times(truth.ideal)
    receives = timeline.where(timeline.lane == Lane.RECV)
    assert {str(t.action): t.duration for t in receives} == truth.transfers
    waits = {str(t.action): t.start - (t.start if t.posted is None else t.posted) for t in receives}
    assert waits == truth.waits
    assert sum(truth.waits.values()) > 0


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "interleaved"])
@pytest.mark.parametrize(("nccl", "told", "sends"), [(NEW, True, True), (OLD, False, True), (NEW, True, False)])
def test_labelled_kernels_go_to_their_actions(name: str, nccl: str, told: bool, sends: bool, tmp_path: Path) -> None:
    microbatches = 6 if name == "interleaved" else 5
    truth = run(tmp_path, name, microbatches=microbatches, nccl=nccl, told=told, sends=sends)
    recording = read_recording([tmp_path], pipetrace.build(name, 3, microbatches))
    check(recording, truth)
    assert all(found.labels is LabelStyle.RUNTIME for found in recording.found)
    assert any("times are those of GPU kernels" in note for note in recording.notes)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved"])
@pytest.mark.parametrize("sends", [True, False])
def test_unlabelled_kernels_are_matched_with_the_schedule(name: str, sends: bool, tmp_path: Path) -> None:
    truth = run(tmp_path, name, microbatches=6, label=None, sends=sends)
    recording = read_recording([tmp_path], pipetrace.build(name, 3, 6))
    check(recording, truth)
    assert all(found.labels is LabelStyle.NONE for found in recording.found)
    assert recording.missing == ()


def test_another_schedule_than_was_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "1f1b", label=None)
    for other, microbatches in (("gpipe", 5), ("zb-h1", 5), ("1f1b", 4), ("1f1b", 10), ("interleaved", 6)):
        with pytest.raises(TraceError) as caught:
            read_recording([tmp_path], pipetrace.build(other, 3, microbatches))
        assert "rank" in caught.value.message
        assert "\n" not in caught.value.message


def test_kernels_in_a_tile_are_told_apart_from_its_gaps(tmp_path: Path) -> None:
    truth = run(tmp_path)
    (found, *_) = read_recording([tmp_path]).found
    forward = found.on_device["F"]
    assert forward.kernels == 3 * 5
    assert forward.gaps == 2 * 7 * 5
    assert forward.running + forward.gaps == 301_000 * 5
    assert truth.ideal.makespan > 0
