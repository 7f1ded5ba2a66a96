"""An NVIDIA GPU as a device."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pipetrace.errors import RunError
from pipetrace.execute.devices.base import Event, Stream

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
MOST_CONNECTIONS = 32  # hardware work queues; streams beyond them share one and wait for each other
_CALIBRATION_CYCLES = 20_000_000
_CALIBRATIONS = 5


def set_connections(streams: int) -> None:
    """Gives each stream a hardware queue of its own, as far as there are any. Before CUDA is first used.

    With fewer queues than streams two streams share one, and the one's kernels wait behind the other's for no reason
    that the schedule knows of. A value that the user has set stays.
    """
    os.environ.setdefault(CONNECTIONS, str(max(8, min(MOST_CONNECTIONS, streams))))


class CudaEvent:
    """A CUDA event."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event

    def done(self) -> bool:
        """See `Event`."""
        return bool(self.event.query())  # type: ignore[no-untyped-call]


class CudaStream:
    """A CUDA stream: running work means launching its kernels."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def run(self, work: Callable[[], None]) -> None:
        """See `Stream`."""
        with torch.cuda.stream(self.stream):
            work()

    def record(self) -> CudaEvent:
        """See `Stream`."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self.stream)
        return CudaEvent(event)

    def wait(self, event: Event) -> None:
        """See `Stream`."""
        if not isinstance(event, CudaEvent):
            raise TypeError(f"{type(event).__name__} is no event of this device")
        self.stream.wait_event(event.event)


class CudaDevice:
    """See the module.

    Args:
        index: Which GPU.

    Raises:
        RunError: There is none.
    """

    def __init__(self, index: int = 0) -> None:
        if not torch.cuda.is_available():
            raise RunError(
                "torch sees no CUDA device", "run with --device cpu, or install a torch that fits the driver"
            )
        if index >= torch.cuda.device_count():
            raise RunError(
                f"there is no GPU {index}: torch sees {torch.cuda.device_count()}",
                "--one-process runs all ranks on one GPU",
            )
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        self._cycles_per_ns = calibrated(self._device)

    @property
    def tensors(self) -> torch.device:
        """See `Device`."""
        return self._device

    def stream(self) -> CudaStream:
        """See `Device`."""
        return CudaStream(self._device)

    def sleep(self, ns: int) -> None:
        """See `Device`."""
        cycles = round(ns * self._cycles_per_ns)
        if cycles > 0:
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    def use(self, value: torch.Tensor) -> None:
        """See `Device`."""
        value.record_stream(torch.cuda.current_stream(self._device))

    def recording(self) -> profile:
        """See `Device`."""
        return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])

    def names(self, streams: list[Stream]) -> list[str]:
        """See `Device`: the profiler numbers streams in a way that torch does not know, so each is recorded once."""
        found: dict[int, str] = {}
        with tempfile.TemporaryDirectory(prefix="pipetrace-") as folder:
            path = Path(folder) / "streams.json"
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
                for number, stream in enumerate(streams):
                    with record_function(f"STREAM:{number}"):
                        stream.run(lambda: self.sleep(1000))
                    self.synchronize()
            recorded.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
            found = stream_names(events)
        missing = [number for number in range(len(streams)) if number not in found]
        if missing:
            raise RunError(f"the profiler recorded no kernel on stream {missing[0]}", "see that CUPTI can be used here")
        return [found[number] for number in range(len(streams))]

    def synchronize(self) -> None:
        """See `Device`."""
        torch.cuda.synchronize(self._device)

    def facts(self) -> dict[str, Any]:
        """See `Device`."""
        properties = torch.cuda.get_device_properties(self._device)
        return {
            "device": "cuda",
            "card": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda or "",
            "sleep_cycles_per_us": round(1000 * self._cycles_per_ns, 3),
            CONNECTIONS: os.environ.get(CONNECTIONS, "not set"),
        }


def calibrated(device: torch.device) -> float:
    """Cycles of `torch.cuda._sleep` in a ns: the median of a few, after the clock has come up."""
    rates: list[float] = []
    for _ in range(_CALIBRATIONS + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        torch.cuda._sleep(_CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]
        end.record()
        torch.cuda.synchronize(device)
        rates.append(_CALIBRATION_CYCLES / (1e6 * begin.elapsed_time(end)))
    return sorted(rates[2:])[_CALIBRATIONS // 2]


def stream_names(events: list[dict[str, Any]]) -> dict[int, str]:
    """Which stream each `STREAM:{number}` range launched its kernel on, from a trace's events.

    A kernel and its launch share a correlation id; the launch lies inside the range.
    """
    ranges = [
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]), int(event["name"].partition(":")[2]))
        for event in events
        if event.get("ph") == "X" and event.get("cat") == "user_annotation" and event["name"].startswith("STREAM:")
    ]
    launches = {
        event["args"]["correlation"]: float(event["ts"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    found = {}
    for event in events:
        if event.get("cat") != "kernel":
            continue
        at = launches.get(event["args"].get("correlation"))
        for begin, end, number in ranges:
            if at is not None and begin <= at <= end:
                found[number] = str(event["args"]["stream"])
    return found
