"""Which tiles work on one chunk: one microbatch on one stage of one pipe."""

from __future__ import annotations

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, code_microbatch, code_pipe, code_stage
from pipetrace.timeline import Timeline


def halves(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Every action of a timeline by itself, a pair's two halves apart.

    Returns:
        Codes, and the row of each in the timeline; two arrays of shape (n + pairs,).
    """
    rows = np.arange(len(timeline), dtype=np.int64)
    paired = timeline.partner != NO_ACTION
    return np.concatenate([timeline.code, timeline.partner[paired]]), np.concatenate([rows, rows[paired]])


def chunk_keys(timeline: Timeline, codes: IntArray, rows: IntArray) -> tuple[IntArray, int]:
    """A number for each (replica, pipe, stage, microbatch), so that all parts of one chunk's work share it.

    Returns:
        The keys, shape of `codes`, and by how much the key of the next stage is higher; no other key lies there.
    """
    stage, microbatch, pipe = code_stage(codes), code_microbatch(codes) + 1, code_pipe(codes)
    per_stage = int(microbatch.max(initial=0)) + 1
    per_pipe = int(stage.max(initial=0)) + 3  # a gap, so that no stage's neighbour is another pipe's
    per_replica = int(pipe.max(initial=0)) + 1
    key: IntArray = ((timeline.replica[rows] * per_replica + pipe) * per_pipe + stage + 1) * per_stage + microbatch
    return key, per_stage
