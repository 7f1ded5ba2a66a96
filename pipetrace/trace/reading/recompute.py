"""Forwards that are run again in a backward (activation checkpointing), where a trace tells them apart.

Autograd numbers each operation that it will differentiate. In a plain backward there are none; where they stand inside
of one of its functions the forward runs again there, whichever way torch's checkpoint was told to work. A range that
the user called recompute tells it too, and is then believed alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.reading.device import Device, of_kernels
from pipetrace.trace.reading.events import Events
from pipetrace.trace.reading.ranges import NO_RANGES
from pipetrace.trace.reading.work import engine_rows, inside, outermost

_LABEL = re.compile(r"(?:^|[^A-Za-z])(?:recompute|recomputation|rematerialize)", re.IGNORECASE)


@dataclass(frozen=True)
class Recomputed:
    """All forwards of a rank that were run again, in the order of time.

    Args:
        at: Unix ns at which the host began each.
        time: ns that it took; on a GPU from its first kernel's start to its last one's end.
        is_known: Whether the trace would tell: it holds operations of autograd, or labels.
    """

    at: list[int]
    time: list[int]
    is_known: bool

    def within(self, start: int, end: int) -> int:
        """ns of those that the host began from `start` to before `end`."""
        return sum(self.time[bisect_left(self.at, start) : bisect_left(self.at, end)])


def recomputed(events: Events, device: Device | None) -> Recomputed:
    """What a rank ran again."""
    rows = np.flatnonzero(
        events.of_names([_LABEL.search(name) is not None for name in events.names]) & ~events.in_categories(NO_RANGES)
    )
    engine = engine_rows(events)
    if rows.size:
        mask = np.zeros(len(events), dtype=np.bool_)
        mask[rows] = True
        rows = outermost(events, mask)
        columns = (events.start[rows], events.end[rows], events.thread[rows])
        spans = list(zip(*(column.tolist() for column in columns), strict=True))
    else:
        spans = _spans(events, engine)
    found = []
    for start, end, thread in sorted(spans):
        if device is None:
            found.append((start, end - start))
            continue
        here = device.within(start, end + 1)
        mine = device.computes[here] & ((device.thread[here] == thread) if not rows.size else True)
        kernels = np.flatnonzero(mine) + here.start
        if kernels.size:
            first, last, _ = of_kernels(device, kernels)
            found.append((start, last - first))
    return Recomputed([at for at, _ in found], [time for _, time in found], bool(rows.size or engine.size))


def _spans(events: Events, engine: IntArray) -> list[tuple[int, int, int]]:
    """(start, end, thread) of the operations inside of autograd's functions that it will differentiate.

    What belongs together stands between two beginnings or ends of such functions: in a checkpoint of the older kind
    the derivatives of what was run again follow inside of the same one.
    """
    forward: BoolArray = (events.forward == 1) & events.in_categories(["cpu_op"])
    if not engine.size or not forward.any():
        return []
    rows = np.flatnonzero(forward)
    rows = rows[inside(events.start[rows], events.thread[rows], events, engine)]
    spans = []
    for thread in np.unique(events.thread[rows]).tolist():
        mine = rows[events.thread[rows] == thread]
        functions = engine[events.thread[engine] == thread]
        edges = np.sort(np.concatenate([events.start[functions], events.end[functions]]))
        bucket = np.searchsorted(edges, events.start[mine], side="right")
        for of in np.unique(bucket).tolist():
            together = mine[bucket == of]
            spans.append((int(events.start[together].min()), int(events.end[together].max()), thread))
    return spans
