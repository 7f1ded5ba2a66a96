"""What of the CUDA device can be seen without one."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from pipetrace.errors import RunError
from pipetrace.execute.devices.cuda import CONNECTIONS, CudaDevice, set_connections, stream_names


@pytest.mark.parametrize(("streams", "set_to"), [(2, "8"), (16, "16"), (64, "32")])
def test_connections_fit_the_streams(monkeypatch: pytest.MonkeyPatch, streams: int, set_to: str) -> None:
    monkeypatch.delenv(CONNECTIONS, raising=False)
    set_connections(streams)
    assert os.environ[CONNECTIONS] == set_to


def test_connections_that_the_user_has_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECTIONS, "1")
    set_connections(16)
    assert os.environ[CONNECTIONS] == "1"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, so nothing is refused")
def test_no_gpu_is_one_clear_line() -> None:
    with pytest.raises(RunError, match="torch sees no CUDA device") as caught:
        CudaDevice()
    assert "--device cpu" in caught.value.hint


def event(name: str, cat: str, ts: float, dur: float = 1.0, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args}


def test_streams_are_told_apart_by_what_was_launched_in_their_range() -> None:
    events = [
        event("STREAM:0", "user_annotation", 10, 20),
        event("cudaLaunchKernel", "cuda_runtime", 12, correlation=1),
        event("STREAM:1", "user_annotation", 40, 20),
        event("cudaLaunchKernel", "cuda_runtime", 45, correlation=2),
        event("cudaLaunchKernel", "cuda_runtime", 99, correlation=3),
        # On the device both run later, and in another order.
        event("spin_kernel", "kernel", 200, correlation=2, stream=20),
        event("spin_kernel", "kernel", 100, correlation=1, stream=16),
        event("other", "kernel", 300, correlation=3, stream=7),
        # The profiler repeats a range over the kernels it holds.
        event("STREAM:0", "gpu_user_annotation", 100, 1),
    ]
    assert stream_names(events) == {0: "16", 1: "20"}
