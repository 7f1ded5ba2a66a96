"""What a rank computed where nothing is labelled: pieces of work between its sends and receives.

On a CPU a piece is made of operations, on a GPU of kernels in the order of their launch. A piece ends where the host
posts a transfer, and where forward turns into backward or back: the backward's operations stand inside autograd's, or
on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.reading.device import Device, OnDevice, of_kernels
from pipetrace.trace.reading.events import Events
from pipetrace.trace.reading.model import Span
from pipetrace.trace.reading.p2p import Transfers

_ENGINE = "autograd::engine::evaluate_function"
_NO_WORK = ("c10d::", "gloo:", "nccl:", "record_param_comms", "nccl::", "gloo::")


@dataclass(frozen=True, eq=False)
class Work:
    """Operations or kernels, in the order in which the host came to them.

    Args:
        at: Unix ns at which the host came to it; shape (n,).
        start, end: Unix ns; shape (n,).
        name: A place in `Events.names`; shape (n,).
        is_backward: shape (n,).
        kernel: Place in the device's kernels; shape (n,), empty on a CPU.
    """

    at: IntArray
    start: IntArray
    end: IntArray
    name: IntArray
    is_backward: BoolArray
    kernel: IntArray

    def within(self, window: Span) -> Work:
        """What the host came to in a window."""
        part = slice(*np.searchsorted(self.at, [window.start, window.end + 1]).tolist())
        return Work(
            self.at[part],
            self.start[part],
            self.end[part],
            self.name[part],
            self.is_backward[part],
            self.kernel[part] if self.kernel.size else self.kernel,
        )


@dataclass(frozen=True)
class Piece:
    """Work that belongs together, from row `first` to before row `last`.

    Args:
        first, last: Rows of a `Work`.
        is_backward: What it is part of.
        at: Unix ns at which the host came to it.
        busy: ns.
    """

    first: int
    last: int
    is_backward: bool
    at: int
    busy: int


def work_of(events: Events, device: Device | None, transfers: Transfers) -> Work:
    """All work of a rank."""
    main = _main_thread(events, transfers)
    engine = engine_rows(events)
    if device is None:
        rows = outermost(events, events.in_categories(["cpu_op"]))
        names = [not name.startswith(_NO_WORK) for name in events.names]
        rows = rows[np.array(names, dtype=np.bool_)[events.name[rows]]] if rows.size else rows
        backward = np.isin(rows, engine) | (_is_autograd(events, main)[events.thread[rows]])
        rows, backward = _by_time(events.start[rows], rows, backward)
        none = np.zeros(0, dtype=np.int64)
        return Work(events.start[rows], events.start[rows], events.end[rows], events.name[rows], backward, none)
    kernels = np.flatnonzero(device.computes)
    launched, thread = device.launched[kernels], device.thread[kernels]
    backward = (thread != main) | inside(launched, thread, events, engine)
    return Work(
        launched, device.start[kernels], device.end[kernels], device.name[kernels].astype(np.int64), backward, kernels
    )


def _by_time(start: IntArray, rows: IntArray, backward: BoolArray) -> tuple[IntArray, BoolArray]:
    order = np.argsort(start, kind="stable")
    return rows[order], backward[order]


def _main_thread(events: Events, transfers: Transfers) -> int:
    """The thread that runs the schedule: it posts the transfers, or else does most."""
    if transfers.thread is not None:
        return transfers.thread
    rows = np.flatnonzero(events.in_categories(["cpu_op", "cuda_runtime"]))
    return int(np.bincount(events.thread[rows]).argmax()) if rows.size else -1


def _is_autograd(events: Events, main: int) -> BoolArray:
    """Which threads are autograd's own, an entry a thread."""
    return np.array(
        [
            at != main and "autograd" in events.thread_names.get(thread, "").lower()
            for at, thread in enumerate(events.threads)
        ]
        or [False],
        dtype=np.bool_,
    )


def engine_rows(events: Events) -> IntArray:
    """The functions of autograd that run a backward."""
    return np.flatnonzero(events.of_names([name.startswith(_ENGINE) for name in events.names]))


def outermost(events: Events, mask: BoolArray) -> IntArray:
    """The rows, of those picked, that lie in no other on their thread."""
    rows = np.flatnonzero(mask)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows], events.thread[rows]))]
    if not rows.size:
        return rows
    thread, start, end = events.thread[rows], events.start[rows], events.end[rows]
    begins = np.flatnonzero(np.diff(thread, prepend=thread[0] - 1))
    outermost = np.zeros(rows.size, dtype=np.bool_)
    for first, last in zip(begins.tolist(), [*begins[1:].tolist(), rows.size], strict=True):
        reached = np.maximum.accumulate(end[first:last])
        outermost[first] = True
        outermost[first + 1 : last] = start[first + 1 : last] >= reached[:-1]
    return rows[outermost]


def inside(time: IntArray, thread: IntArray, events: Events, rows: IntArray) -> BoolArray:
    """Which moments lie in one of the (outermost) ranges of their own thread."""
    inside = np.zeros(time.size, dtype=np.bool_)
    if not rows.size:
        return inside
    mask = np.zeros(len(events), dtype=np.bool_)
    mask[rows] = True
    rows = outermost(events, mask)
    for of in np.unique(events.thread[rows]).tolist():
        mine = rows[events.thread[rows] == of]
        here = np.flatnonzero(thread == of)
        at = np.searchsorted(events.start[mine], time[here], side="right") - 1
        inside[here] = (at >= 0) & (time[here] < events.end[mine][at])
    return inside


def pieces_of(work: Work, posted: Sequence[int]) -> list[Piece]:
    """The pieces of some work.

    Args:
        work: Of one window.
        posted: Unix ns of each transfer's posting, in order.
    """
    if not work.at.size:
        return []
    posts_before = np.searchsorted(np.array(posted, dtype=np.int64), work.at)
    cut = (np.diff(work.is_backward.astype(np.int8)) != 0) | (np.diff(posts_before) != 0)
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), work.at.size]
    length = work.end - work.start
    return [
        Piece(first, last, bool(work.is_backward[first]), int(work.at[first]), int(length[first:last].sum()))
        for first, last in pairwise(edges)
    ]


def tile_of(work: Work, device: Device | None, first: int, last: int) -> tuple[int, int, OnDevice | None]:
    """Where the tile of some rows begins and ends, and what its kernels did."""
    if device is None:
        return int(work.start[first:last].min()), int(work.end[first:last].max()), None
    return of_kernels(device, work.kernel[first:last])
