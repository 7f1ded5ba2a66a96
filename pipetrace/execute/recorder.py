"""torch.profiler around the profiled steps of one rank."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from pipetrace.errors import OutputError
from pipetrace.execute.devices.base import Device
from pipetrace.trace.run_folder import RunInfo, trace_name

METADATA_KEY = "pipetrace"
METADATA_SCHEMA = 1

# A trace is written while other ranks wait to be done; the last few percent of size are not worth three times the time.
_GZIP_LEVEL = 4


def clock_probe() -> list[int]:
    """[Unix ns, monotonic ns] of one moment: the Unix clock read between two readings of the other."""
    before = time.monotonic_ns()
    unix = time.time_ns()
    return [unix, (before + time.monotonic_ns()) // 2]


def boot_id() -> str:
    """What ranks on one host share and others do not; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Recorder:
    """Records one rank.

    Shapes, stacks and memory stay off: they multiply a trace's size and slow what they watch.

    Args:
        rank: Global rank.
        info: Of the run, for the metadata.
        device: That all ranks of the run share; None where each has a process of its own.
    """

    def __init__(self, rank: int, info: RunInfo, device: Device | None = None) -> None:
        self._device = device
        self.shared: dict[str, Any] = {}
        """Where all ranks share the device: its streams as the profiler calls them and whose they are, and which (pipe,
        stage) each rank holds."""
        self._rank = rank
        self._replica, self._pipeline_rank = divmod(rank, info.ranks)
        self._info = info
        self._profile = profile(activities=[ProfilerActivity.CPU]) if device is None else device.recording()
        self._probes = [clock_probe()]

    def start(self) -> None:
        """Records from here on. The first start in a process takes a while, so do it before ranks meet."""
        self._profile.start()

    def label(self, text: str) -> torch.profiler.record_function:
        """A range of this name in the trace, to be used in a `with`."""
        return torch.profiler.record_function(text)

    def finish(self, folder: Path, scratch: Path) -> None:
        """Stops, and writes the trace; it appears under its name only when it is whole.

        Args:
            folder: Where the trace goes.
            scratch: Folder for what is thrown away.

        Raises:
            OutputError: The trace cannot be written.
        """
        self._probes.append(clock_probe())
        self._profile.add_metadata_json(METADATA_KEY, json.dumps(self._metadata()))
        self._profile.stop()
        raw = scratch / f"rank{self._rank}.json"
        self._profile.export_chrome_trace(str(raw))
        final = folder / trace_name(self._rank)
        partial = final.with_name(final.name + ".partial")
        with raw.open("rb") as read:
            try:
                with gzip.open(partial, "wb", compresslevel=_GZIP_LEVEL) as write:
                    shutil.copyfileobj(read, write, 1 << 20)
                partial.replace(final)
            except OSError as error:
                raise OutputError(
                    f"the trace cannot be written: {error.strerror or error}",
                    "see that the run folder is still there and has room",
                ) from None
        raw.unlink()

    def _metadata(self) -> dict[str, Any]:
        return {
            **({} if self._device is None else {"device": self._device.facts()}),
            **self.shared,
            "schema": METADATA_SCHEMA,
            "rank": self._rank,
            "replica": self._replica,
            "pipeline_rank": self._pipeline_rank,
            "run": self._info.to_dict(),
            "clock": {"host": socket.gethostname(), "boot_id": boot_id(), "probes": self._probes},
        }
