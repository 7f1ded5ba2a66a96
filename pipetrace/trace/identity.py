"""What a trace says of itself, in torch.profiler's file: which rank of which run, and by which clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipetrace.trace.run_folder import RunInfo

METADATA_KEY = "pipetrace"
METADATA_SCHEMA = 1


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


def identity(info: RunInfo, rank: int, probes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What stands under `METADATA_KEY`.

    Args:
        info: What was run.
        rank: Global rank.
        probes: See `clock_probe`: at least at the recording's end, better at its beginning too.
    """
    replica, pipeline_rank = divmod(rank, info.ranks)
    return {
        "schema": METADATA_SCHEMA,
        "rank": rank,
        "replica": replica,
        "pipeline_rank": pipeline_rank,
        "run": info.to_dict(),
        "clock": {"host": socket.gethostname(), "boot_id": boot_id(), "probes": [list(probe) for probe in probes]},
    }
