"""Which action waits for which: the graph under every schedule.

Rows are actions (or overlapped pairs) in one flat numbering, rank after rank in list order. A row waits for at most
three others, so the graph is three columns of row numbers:

* `inputs`: a forward needs the forward of the stage before, same microbatch;
* `local`: a backward needs its own stage's forward, a weight gradient its own stage's input gradient;
* `gradients`: a backward needs the backward of the stage after.

Where a schedule has its sends and receives in the lists, their rows wait for nothing here: the graph is that of the
computation, and `pipetrace.transfers` says what the rows add to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import (
    BoolArray,
    IntArray,
    Kind,
    code_kind,
    code_microbatch,
    code_stage,
    code_text,
)
from pipetrace.errors import DeadlockError, ScheduleError

NO_ROW = -1


@dataclass(frozen=True, eq=False)
class Links:
    """The dependencies of n rows.

    Args:
        code, partner: The rows' actions, and the backward half where a row is a pair; shape (n,).
        first: Row at which each rank's list begins, and n at the end; shape (ranks + 1,).
        rank: Rank of each row; shape (n,).
        inputs, local, gradients: Row that each row waits for, or `NO_ROW`; shape (n,).
    """

    code: IntArray
    partner: IntArray
    first: IntArray
    rank: IntArray
    inputs: IntArray
    local: IntArray
    gradients: IntArray

    def crosses(self, producer: IntArray) -> BoolArray:
        """Where a column of producers names a row of another rank, so that data must travel."""
        crossing: BoolArray = (producer != NO_ROW) & (self.rank[producer] != self.rank)
        return crossing

    def text(self, row: int) -> str:
        """The text of a row's action or pair."""
        return code_text(int(self.code[row]), int(self.partner[row]))


def link(code: IntArray, partner: IntArray, first: IntArray, stages: int, microbatches: int) -> Links:
    """Joins every row with what it waits for.

    Every (stage, microbatch) must lie inside `stages` and `microbatches`, and stand at most once for each of F, I or
    B, and W; `pipetrace.validate` checks that first and with better words.

    Raises:
        ScheduleError: A row waits for an action that is nowhere in the schedule.
    """
    rows = np.arange(code.size, dtype=np.int64)
    kind, key = code_kind(code), code_stage(code) * microbatches + code_microbatch(code)
    paired = partner != 0
    # The backward half of a row: its partner where it is a pair, itself where it is an I or B.
    backward_code = np.where(paired, partner, code)
    backward_key = code_stage(backward_code) * microbatches + code_microbatch(backward_code)
    is_forward = kind == Kind.F
    is_backward = paired | (kind == Kind.I) | (kind == Kind.B)
    is_weight = kind == Kind.W

    forward_row = np.full(stages * microbatches, NO_ROW, dtype=np.int64)
    backward_row = forward_row.copy()
    forward_row[key[is_forward]] = rows[is_forward]
    backward_row[backward_key[is_backward]] = rows[is_backward]

    inputs, local, gradients = (np.full(code.size, NO_ROW, dtype=np.int64) for _ in range(3))
    takes_input = is_forward & (key >= microbatches)
    inputs[takes_input] = forward_row[key[takes_input] - microbatches]
    local[is_backward] = forward_row[backward_key[is_backward]]
    local[is_weight] = backward_row[key[is_weight]]
    takes_gradient = is_backward & (backward_key < (stages - 1) * microbatches)
    gradients[takes_gradient] = backward_row[backward_key[takes_gradient] + microbatches]

    rank = np.repeat(np.arange(first.size - 1, dtype=np.int64), np.diff(first))
    for needed, column, stage_step, what in (
        (takes_input, inputs, -1, "forward"),
        (is_backward, local, 0, "forward"),
        (is_weight, local, 0, "input gradient"),
        (takes_gradient, gradients, 1, "backward"),
    ):
        absent = needed & (column == NO_ROW)
        if absent.any():
            row = int(np.argmax(absent))
            half = int(code[row] if column is inputs or not paired[row] else partner[row])
            stage, microbatch = int(code_stage(half)) + stage_step, int(code_microbatch(half))
            raise ScheduleError(
                f"rank {rank[row]}: {code_text(half)} needs the {what} of stage {stage}, "
                f"microbatch {microbatch}, which is nowhere in the schedule"
            )
    return Links(code, partner, first, rank, inputs, local, gradients)


def longest_path(
    links: Links,
    duration: IntArray,
    *,
    forward_ready: IntArray | None = None,
    backward_ready: IntArray | None = None,
    input_delay: IntArray | None = None,
    gradient_delay: IntArray | None = None,
) -> IntArray:
    """The earliest start of every row when each rank runs its list in order.

    A row starts when the row before it on its rank has ended and everything it waits for is there.

    Args:
        links: The graph.
        duration: ns; shape (n,).
        forward_ready: ns from a row's start to its forward output; shape (n,); `duration` when None.
        backward_ready: The same for its input gradient.
        input_delay: ns that the input of each row travels; shape (n,); 0 when None.
        gradient_delay: The same for the gradient it takes.

    Returns:
        Start of each row in ns; shape (n,).

    Raises:
        DeadlockError: The lists wait for each other in a circle.
    """
    n = duration.size
    durations, firsts = duration.tolist(), links.first.tolist()
    forward_after = durations if forward_ready is None else forward_ready.tolist()
    backward_after = durations if backward_ready is None else backward_ready.tolist()
    input_delays = [0] * n if input_delay is None else input_delay.tolist()
    gradient_delays = [0] * n if gradient_delay is None else gradient_delay.tolist()
    inputs, local, gradients = links.inputs.tolist(), links.local.tolist(), links.gradients.tolist()

    starts: list[int] = [-1] * n
    clock = [0] * (len(firsts) - 1)
    position = firsts[:-1]
    waiting_for: dict[int, list[int]] = {}
    runnable = list(range(len(clock)))
    while runnable:
        rank = runnable.pop()
        row, stop, now = position[rank], firsts[rank + 1], clock[rank]
        while row < stop:
            start = now
            producer = inputs[row]
            if producer >= 0:
                if starts[producer] < 0:
                    break
                at = starts[producer] + forward_after[producer] + input_delays[row]
                start = max(start, at)
            # What is local stands on the same rank: once it has started, the list order makes it end in time.
            producer = local[row]
            if producer >= 0 and starts[producer] < 0:
                break
            producer = gradients[row]
            if producer >= 0:
                if starts[producer] < 0:
                    break
                at = starts[producer] + backward_after[producer] + gradient_delays[row]
                start = max(start, at)
            starts[row] = start
            now = start + durations[row]
            if row in waiting_for:
                runnable.extend(waiting_for.pop(row))
            row += 1
        position[rank], clock[rank] = row, now
        if row < stop:
            waiting_for.setdefault(producer, []).append(rank)
    if waiting_for:
        raise _deadlock(
            links, {rank: (position[rank], producer) for producer, ranks in waiting_for.items() for rank in ranks}
        )
    return np.array(starts, dtype=np.int64)


def _deadlock(links: Links, waiting: dict[int, tuple[int, int]]) -> DeadlockError:
    text = [
        f"rank {rank} at {links.text(row)} waits for {links.text(producer)}"
        for rank, (row, producer) in sorted(waiting.items())
    ]
    more = f"; and {len(text) - 8} more ranks" if len(text) > 8 else ""
    return DeadlockError(
        "deadlock: " + "; ".join(text[:8]) + more,
        "move the awaited action before the one that stands in its way",
    )
