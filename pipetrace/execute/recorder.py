"""torch.profiler around the profiled steps of one rank."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from pipetrace.errors import OutputError
from pipetrace.execute.devices.base import Device
from pipetrace.trace.identity import METADATA_KEY, clock_probe, identity
from pipetrace.trace.run_folder import RunInfo, trace_name

# A trace is written while other ranks wait to be done; the last few percent of size are not worth three times the time.
_GZIP_LEVEL = 4


def _on_cpu(*, all_threads: bool) -> profile:
    if not all_threads:
        return profile(activities=[ProfilerActivity.CPU])
    return profile(activities=[ProfilerActivity.CPU], experimental_config=_ExperimentalConfig(profile_all_threads=True))


class Recorder:
    """Records one rank.

    Shapes, stacks and memory stay off: they multiply a trace's size and slow what they watch.

    Args:
        rank: Global rank.
        info: Of the run, for the metadata.
        device: That all ranks of the run share; None where each has a process of its own.
        all_threads: Whether threads beside this one have labels.
    """

    def __init__(self, rank: int, info: RunInfo, device: Device | None = None, *, all_threads: bool = False) -> None:
        self._device = device
        self.shared: dict[str, Any] = {}
        """Where all ranks share the device: its streams as the profiler calls them and whose they are, and which (pipe,
        stage) each rank holds."""
        self._rank = rank
        self._info = info
        self._profile = _on_cpu(all_threads=all_threads) if device is None else device.recording()
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
        device = {} if self._device is None else {"device": self._device.facts()}
        return {**device, **self.shared, **identity(self._info, self._rank, self._probes)}
