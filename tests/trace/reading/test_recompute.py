"""What a backward runs again is told apart, and what closes a step is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import pipetrace
from pipetrace.action import Kind
from pipetrace.fit import fit
from pipetrace.report.recording import recording_summary
from pipetrace.timeline import Lane
from pipetrace.trace.reduced import read_reading, write_reading
from pipetrace.trace.torch_profiler import Recording, read_ranks, read_recording
from tests.trace.recorded import dump, event, trace_of


def op(
    name: str, start: int, end: int, sequence: int | None = None, forward_thread: int = 0, tid: int = 7
) -> dict[str, Any]:
    args = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": forward_thread}
    return event(name, start, end, cat="cpu_op", tid=tid, args=args)


def function(start: int, end: int, tid: int = 7) -> dict[str, Any]:
    return op("autograd::engine::evaluate_function: AddmmBackward0", start, end, 3, 1, tid)


def written(folder: Path, *events: dict[str, Any]) -> Recording:
    (folder / "rank0.json").write_text(dump(trace_of(0, 1, list(events))))
    return read_recording([folder])


def again(recording: Recording) -> dict[str, int]:
    (step,) = recording.recomputed
    return {str(pipetrace.Action.from_code(code)): ns for (_, code), ns in step.items()}


@pytest.mark.parametrize("reentrant", [True, False])
def test_torch_s_checkpoints_are_told_apart(reentrant: bool, tmp_path: Path) -> None:
    """Both kinds, and a backward without any has none."""
    layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
    value = torch.randn(8, 64, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for batch, runs_again in enumerate((True, False)):
            with pipetrace.label(f"0F{batch}"):
                output = checkpoint(layers, value, use_reentrant=reentrant) if runs_again else layers(value)
                loss = output.square().mean()
            with pipetrace.label(f"0B{batch}"):
                loss.backward()
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    recording = read_recording([tmp_path])
    assert list(again(recording)) == ["0B0"]
    assert recording.tells_recompute
    (step,) = recording.steps
    backward = step.find(pipetrace.Action(Kind.B, 0, 0))
    assert backward is not None
    assert 0 < again(recording)["0B0"] < backward.duration


def test_of_one_function_what_is_differentiated_anew_counts_and_its_derivatives_do_not(tmp_path: Path) -> None:
    recording = written(
        tmp_path,
        event("PP:0F0", 0, 100),
        op("aten::linear", 5, 90, 1),
        event("PP:0B0", 100, 400),
        function(110, 300),  # of a checkpoint: it runs two operations again, and differentiates them
        op("aten::linear", 120, 150, 11),
        op("aten::addmm", 125, 145, 12),
        op("aten::relu", 160, 170, 13),
        function(180, 290),
        op("aten::mm", 190, 280),
        function(310, 390),
        op("aten::linear", 320, 327, 14),
        op("aten::mm", 330, 380),
    )
    assert again(recording) == {"0B0": 50 + 7}
    fitted = fit(recording.steps, recomputed=recording.recomputed)
    cost = fitted.costs.of(0)
    assert (cost.F, cost.B, cost.I, cost.W, cost.recompute) == (100, 243, 121, 122, 57)
    assert fitted.actions[0, "recompute"].median == 57
    assert fitted.actions[0, "B"].median == 300
    assert recording_summary(recording)["steps"][0]["recompute_ns"] == [57]
    ideal = pipetrace.simulate(pipetrace.build("gpipe", 1, 1), fitted.costs)
    assert ideal.makespan == 400


def test_of_a_split_backward_it_is_the_input_gradient_s(tmp_path: Path) -> None:
    names = [("0F0", 0, 100), ("0I0", 100, 250), ("0W0", 250, 300)]
    labels = [event(f"PP:{name}", start, end) for name, start, end in names]
    recording = written(tmp_path, *labels, function(110, 240), op("aten::linear", 120, 180, 9))
    cost = fit(recording.steps, recomputed=recording.recomputed).costs.of(0)
    assert (cost.I, cost.W, cost.B, cost.recompute) == (90, 50, None, 60)


def test_a_range_that_says_so_is_believed_alone(tmp_path: Path) -> None:
    recording = written(
        tmp_path,
        event("PP:0F0", 0, 100),
        event("PP:0B0", 100, 400),
        event("layer 3: recompute", 105, 135),
        event("recompute attention", 110, 120),
        function(110, 300),
        op("aten::linear", 120, 150, 11),
    )
    assert again(recording) == {"0B0": 30}


def test_on_a_gpu_it_lasts_as_its_kernels(tmp_path: Path) -> None:
    def kernel(id_: int, launched: int, start: int, end: int) -> list[dict[str, Any]]:
        more = {"correlation": id_, "device": 0, "stream": 7}
        return [
            event("cudaLaunchKernel", launched, launched + 2, cat="cuda_runtime", tid=2, args={"correlation": id_}),
            event("gemm", start, end, cat="kernel", pid=0, tid=7, args=more),
        ]

    recording = written(
        tmp_path,
        event("PP:0F0", 0, 10),
        *kernel(1, 5, 100, 200),
        event("PP:0B0", 10, 90),
        function(20, 60, tid=2),
        op("aten::linear", 25, 40, 11, tid=2),
        *kernel(2, 26, 300, 340),
        *kernel(3, 38, 345, 400),
        *kernel(4, 45, 400, 500),
    )
    assert again(recording) == {"0B0": 100}
    (step,) = recording.steps
    backward = step.find(pipetrace.Action(Kind.B, 0, 0))
    assert backward is not None
    assert backward.duration == 200


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    labels = [event("PP:0F0", 0, 100), event("PP:0B0", 100, 400)]
    recording = written(tmp_path, *labels)
    assert not recording.tells_recompute
    fitted = fit(recording.steps, recomputed=recording.recomputed, tells_recompute=False)
    assert any("where a forward is run again, it is part of its backward" in line for line in fitted.assumed)
    assert written(tmp_path, *labels, function(110, 120)).tells_recompute


def test_gradient_reduction_and_optimiser_are_timed(tmp_path: Path) -> None:
    recording = written(
        tmp_path,
        event("ProfilerStep#0", 0, 500),
        event("PP:0F0", 0, 100),
        event("PP:0B0", 100, 400),
        event("PP:0REDUCE_GRAD", 400, 430),
        event("PP:0OPTIM", 430, 480),
    )
    (step,) = recording.steps
    assert step.makespan == 400  # what closes a step is not in it
    assert [(str(tile.action), tile.lane, tile.duration) for tile in step][2:] == [
        ("0REDUCE_GRAD", Lane.COMPUTE, 30),
        ("0OPTIM", Lane.COMPUTE, 50),
    ]
    fitted = fit(recording.steps)
    assert (fitted.costs.of(0).reduce_grad, fitted.costs.of(0).optim) == (30, 50)
    assert (fitted.costs.of(7).reduce_grad, fitted.costs.of(7).optim) == (30, 50)
    (of,) = recording_summary(recording)["steps"]
    assert (of["reduce_grad_ns"], of["optim_ns"]) == ([30], [50])
    assert "recompute_ns" not in of
    (reading,) = read_ranks([tmp_path])
    assert read_reading(write_reading(tmp_path, reading)) == reading
