"""A rank's GPU kernels, joined to what launched them.

A kernel is asynchronous: what tells whose it is is its launch, which carries the same correlation id. A backward's
kernels are launched by autograd's own thread while the label stands on the main one, so that a launch is joined to a
label by the process's time and not by thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.reading.events import NONE, Events

KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver")
# ncclDevKernel_SendRecv(...) since NCCL 2.19, ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t before, rccl the same.
_COMMUNICATION = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)[A-Za-z]*Kernel", re.IGNORECASE)
_SEND_RECV = re.compile(r"SendRecv", re.IGNORECASE)
_P2P = ("send", "recv", "receive", "coalesced")


class OnDevice(NamedTuple):
    """What a tile's kernels did; ns.

    Args:
        kernels: How many there were.
        running: Time that one of them ran.
        gaps: Time of the tile that none ran.
        delay: From the first one's launch on the host to its start.
    """

    kernels: int
    running: int
    gaps: int
    delay: int


@dataclass(frozen=True, eq=False)
class Device:
    """A rank's kernels in the order of their launch.

    Args:
        launched: Unix ns of the launch's start on the host; shape (n,).
        thread: Who launched it, a place in `Events.threads`; shape (n,).
        start, end: Unix ns; shape (n,).
        name: A place in `Events.names`; shape (n,).
        stream: shape (n,).
        communicates: Which kernels are NCCL's; shape (n,).
        is_p2p: Which of those are a send or a receive, as far as can be told without what launched them; shape (n,).
        unlaunched: Kernels whose launch was not recorded.
        row: Of the kernel in the events; shape (n,).
    """

    launched: IntArray
    thread: IntArray
    start: IntArray
    end: IntArray
    name: IntArray
    stream: IntArray
    communicates: BoolArray
    is_p2p: BoolArray
    row: IntArray
    unlaunched: int

    @cached_property
    def computes(self) -> BoolArray:
        """Which kernels are no communication; shape (n,)."""
        return ~self.communicates

    def within(self, start: int, end: int) -> slice:
        """The kernels that were launched from `start` to before `end`."""
        return slice(*np.searchsorted(self.launched, [start, end]).tolist())


def device_of(events: Events) -> Device | None:
    """The kernels of a rank; None where it has none."""
    is_kernel = events.in_categories(KERNELS)
    if not is_kernel.any():
        return None
    rows = np.flatnonzero(is_kernel)
    launches = np.flatnonzero(events.in_categories(LAUNCHES) & (events.correlation != NONE))
    launches = launches[np.argsort(events.correlation[launches], kind="stable")]
    ids = events.correlation[launches]
    at = np.minimum(np.searchsorted(ids, events.correlation[rows]), max(ids.size - 1, 0))
    known = (ids[at] == events.correlation[rows]) if ids.size else np.zeros(rows.size, dtype=np.bool_)
    rows, at = rows[known], at[known]
    launch = launches[at]
    order = np.lexsort((events.start[rows], events.start[launch]))
    rows, launch = rows[order], launch[order]
    communicates = events.of_names([_COMMUNICATION.match(name) is not None for name in events.names])[rows]
    names = events.of_names([_SEND_RECV.search(name) is not None for name in events.names])[rows]
    # An all-to-all is made of the same kernels; where the profiler recorded what they are, that tells.
    collective = np.array([_is_collective(events, row) for row in rows.tolist()], dtype=np.bool_)
    return Device(
        launched=events.start[launch],
        thread=events.thread[launch],
        start=events.start[rows],
        end=events.end[rows],
        name=events.name[rows],
        stream=events.stream[rows],
        communicates=communicates,
        is_p2p=communicates & names & ~collective,
        row=rows,
        unlaunched=int((~known).sum()),
    )


def _is_collective(events: Events, row: int) -> bool:
    args = events.details.get(row)
    return args is not None and isinstance(args.collective, str) and args.collective.lower() not in _P2P


def of_kernels(device: Device, chosen: IntArray) -> tuple[int, int, OnDevice]:
    """Where the tile of some kernels begins and ends, and what they did in it.

    Args:
        device: All kernels.
        chosen: Places of at least one of them, in the order of launch.
    """
    start, end = device.start[chosen], device.end[chosen]
    begins, ends = int(start.min()), int(end.max())
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(np.concatenate([[begins], end[order]]))
    running = int(np.maximum(reached[1:] - np.maximum(reached[:-1], start[order]), 0).sum())
    delay = max(0, begins - int(device.launched[chosen].min()))
    return begins, ends, OnDevice(chosen.size, running, ends - begins - running, delay)
