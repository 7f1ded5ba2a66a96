"""Which action waits for which: the graph under every schedule.

Rows are actions (or overlapped pairs) in one flat numbering, rank after rank in list order. A row waits for at most
three others, so the graph is three columns of row numbers:

* `inputs`: a forward needs the forward of the stage before, same microbatch;
* `local`: a backward needs its own stage's forward, a weight gradient its own stage's input gradient;
* `gradients`: a backward needs the backward of the stage after.

Where a schedule is written in parts of layers, "stage" is a part of a layer here: see `pipetrace.chain`.

Where a schedule has its sends and receives in the lists, their rows wait for nothing here: the graph is that of the
computation, and `pipetrace.transfers` says what the rows add to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipetrace.action import (
    BoolArray,
    IntArray,
    Kind,
    code_kind,
    code_microbatch,
    code_pipe,
    code_text,
)
from pipetrace.chain import Chain
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

    @cached_property
    def strangers(self) -> tuple[IntArray, dict[int, int]]:
        """What each row waits for that its rank's own list does not bring in time.

        Returns:
            The row that each row waits for, n where there is none, shape (n,); and for rows that wait for two, as
            overlapped pairs do, the second, which brings a gradient.
        """
        rows = np.arange(self.rank.size)
        input_waits, local_waits, gradient_waits = (
            (column >= rows) | self.crosses(column) for column in (self.inputs, self.local, self.gradients)
        )
        first = np.where(
            local_waits,  # comes later on its own rank, that is never
            self.local,
            np.where(input_waits, self.inputs, np.where(gradient_waits, self.gradients, rows.size)),
        )
        both = input_waits & gradient_waits
        return first, dict(zip(np.flatnonzero(both).tolist(), self.gradients[both].tolist(), strict=True))

    @cached_property
    def order(self) -> IntArray:
        """A topological order of the rows; see `topological_order`."""
        return topological_order(self)

    def text(self, row: int) -> str:
        """The text of a row's action or pair."""
        return code_text(int(self.code[row]), int(self.partner[row]))


def link(code: IntArray, partner: IntArray, first: IntArray, chain: Chain, microbatches: int) -> Links:
    """Joins every row with what it waits for.

    Every (place of the chain, microbatch) must lie inside `chain` and `microbatches`, and stand at most once for each
    of F, I or B, and W; `pipetrace.validation.validate` checks that first and with better words.

    Raises:
        ScheduleError: A row waits for an action that is nowhere in the schedule.
    """
    rows = np.arange(code.size, dtype=np.int64)
    kind, key = code_kind(code), chain.place(code) * microbatches + code_microbatch(code)
    paired = partner != 0
    # The backward half of a row: its partner where it is a pair, itself where it is an I or B.
    backward_code = np.where(paired, partner, code)
    backward_key = chain.place(backward_code) * microbatches + code_microbatch(backward_code)
    is_forward = kind == Kind.F
    is_backward = paired | (kind == Kind.I) | (kind == Kind.B)
    is_weight = kind == Kind.W

    forward_row = np.full(len(chain) * microbatches, NO_ROW, dtype=np.int64)
    backward_row = forward_row.copy()
    forward_row[key[is_forward]] = rows[is_forward]
    backward_row[backward_key[is_backward]] = rows[is_backward]

    inputs, local, gradients = (np.full(code.size, NO_ROW, dtype=np.int64) for _ in range(3))
    takes_input = is_forward & (key >= microbatches)
    inputs[takes_input] = forward_row[key[takes_input] - microbatches]
    local[is_backward] = forward_row[backward_key[is_backward]]
    local[is_weight] = backward_row[key[is_weight]]
    takes_gradient = is_backward & (backward_key < (len(chain) - 1) * microbatches)
    gradients[takes_gradient] = backward_row[backward_key[takes_gradient] + microbatches]

    rank = np.repeat(np.arange(first.size - 1, dtype=np.int64), np.diff(first))
    for needed, column, step, what in (
        (takes_input, inputs, -1, Kind.F),
        (is_backward, local, 0, Kind.F),
        (is_weight, local, 0, Kind.I),
        (takes_gradient, gradients, 1, Kind.B),
    ):
        absent = needed & (column == NO_ROW)
        if absent.any():
            row = int(np.argmax(absent))
            half = int(code[row] if column is inputs or not paired[row] else partner[row])
            place = int(chain.place(np.array(half))) + step
            missing = code_text(chain.code(place, what, code_microbatch(half), code_pipe(half)))
            raise ScheduleError(
                f"rank {rank[row]}: {code_text(half)} needs {missing}, which is nowhere in the schedule"
            )
    return Links(code, partner, first, rank, inputs, local, gradients)


def topological_order(links: Links) -> IntArray:
    """An order of all rows in which every row comes after what it waits for and after the row before it on its rank.

    Returns:
        Row numbers; shape (n,).

    Raises:
        DeadlockError: There is none: the ranks' lists wait for each other.
    """
    firsts = links.first.tolist()
    stranger, second = links.strangers
    strangers = stranger.tolist()
    done = bytearray(len(strangers) + 1)
    done[-1] = 1  # stands for what waits for nobody
    order: list[int] = []
    position = firsts[:-1]
    waiting_for: dict[int, list[int]] = {}
    runnable = list(range(len(position)))
    while runnable:
        rank = runnable.pop()
        begin = row = position[rank]
        stop = firsts[rank + 1]
        while row < stop:
            producer = strangers[row]
            if not done[producer]:
                break
            if row in second:
                producer = second[row]
                if not done[producer]:
                    break
            done[row] = 1
            if row in waiting_for:
                runnable.extend(waiting_for.pop(row))
            row += 1
        position[rank] = row
        order.extend(range(begin, row))
        if row < stop:
            waiting_for.setdefault(producer, []).append(rank)
    if waiting_for:
        stuck = {rank: (position[rank], producer) for producer, ranks in waiting_for.items() for rank in ranks}
        raise _deadlock(links, stuck)
    return np.array(order, dtype=np.int64)


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
    order = links.order
    # Of what a row waits for only strangers count: what its own rank brings has ended, by the list order.
    after_input = (duration if forward_ready is None else forward_ready)[links.inputs]
    after_gradient = (duration if backward_ready is None else backward_ready)[links.gradients]
    if input_delay is not None:
        after_input = after_input + input_delay
    if gradient_delay is not None:
        after_gradient = after_gradient + gradient_delay
    producer, second = links.strangers
    delay = np.where(links.crosses(links.inputs), after_input, np.where(producer < n, after_gradient, 0))
    second_delay = {row: int(after_gradient[row]) for row in second}
    starts = [0] * (n + 1)  # the last place stands for what waits for nobody
    clock = [0] * (links.first.size - 1)
    columns = (order, links.rank[order], producer[order], delay[order], duration[order])
    steps = zip(*(column.tolist() for column in columns), strict=True)
    for row, rank, before, by, lasts in steps:
        start = starts[before] + by
        if start < clock[rank]:  # noqa: PLR1730 - a call of max for each of a million rows would show
            start = clock[rank]
        if row in second:
            start = max(start, starts[second[row]] + second_delay[row])
        starts[row] = start
        clock[rank] = start + lasts
    return np.array(starts[:-1], dtype=np.int64)


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
