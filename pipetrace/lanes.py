"""When the parts of layers run: every rank has a lane for compute and one for all-to-alls.

Each lane runs its rows in list order. A row starts when its lane is free and its input is there. Behind a fence nothing
starts before both lanes have come to the end of what stands before it in the list; nor before the inputs of both halves
are there, where it is a pair that begins with the first part of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind, code_kind, code_stage, is_all_to_all
from pipetrace.costs import Costs
from pipetrace.links import NO_ROW, Links
from pipetrace.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class LaneTimes:
    """Times of a schedule's rows, in ns from the start of the step; arrays of shape (n,).

    Args:
        start, end: Of each row.
        there: When what a row takes from another had arrived; 0 where it takes nothing.
        idle_since: Since when nothing but its input held a row up: its lane, and for an all-to-all the compute lane
            too, had run what stands before it in the list.
        posted: When what a row receives was posted there; 0 where that was ahead.
    """

    start: IntArray
    end: IntArray
    there: IntArray
    idle_since: IntArray
    posted: IntArray


def lane_times(schedule: Schedule, costs: Costs, *, ahead: bool = True) -> LaneTimes:
    """The earliest times of a schedule in parts of layers.

    Args:
        schedule: What is run.
        costs: At which costs.
        ahead: Whether receives are posted ahead; otherwise the lane that needs one posts it and waits.

    Raises:
        ScheduleError: The schedule is not valid.
        DeadlockError: The lists wait for each other in a circle.
        CostError: The costs are of another schedule.
    """
    links, duration, fence = schedule.links, costs.durations(schedule), schedule.fences
    with_other = fenced_pairs(schedule)
    other = dict(zip(with_other.tolist(), (with_other + 1).tolist(), strict=True))
    order = issue_order(schedule)
    # A part waits for one other at most: a forward for the part before, a backward for the part behind. Its own
    # forward, or I, ran before it on the same lane.
    producer = np.where(links.inputs != NO_ROW, links.inputs, links.gradients)
    comes = producer != NO_ROW
    travel = np.where(comes, _travel(schedule, costs), 0)
    made = np.where(comes, duration[producer], 0)
    late = links.crosses(producer) & (not ahead)
    columns = (links.rank, is_all_to_all(links.code), fence, producer, made, travel, late, duration)
    of_row = list(zip(*(column.tolist() for column in columns), strict=True))
    starts, idle_since = [0] * (duration.size + 1), [0] * duration.size  # the last place is that of `NO_ROW`
    compute, all_to_all = ([0] * schedule.ranks for _ in range(2))
    posts: dict[int, int] = {}

    def there(row: int, now: int) -> int:
        """When what a row takes has arrived, if it is waited for from now on."""
        _, _, _, before, lasts, on_way, posts_itself, _ = of_row[row]
        ready: int = starts[before] + lasts
        if posts_itself:
            ready = max(ready, posts.setdefault(row, now))
        came: int = ready + on_way
        return came

    arrived = [0] * duration.size
    for row in order.tolist():
        rank, travels, fenced, *_, lasts = of_row[row]
        if fenced:
            both = max(compute[rank], all_to_all[rank])
            if row in other:
                both = max(there(row, both), there(other[row], both), both)
            compute[rank] = all_to_all[rank] = both
        lane = all_to_all if travels else compute
        arrived[row] = there(row, lane[rank])
        starts[row] = start = max(lane[rank], arrived[row])
        idle_since[row] = max(compute[rank], lane[rank])
        lane[rank] = start + lasts
    start_of, post_of = np.array(starts[:-1], dtype=np.int64), np.zeros(duration.size, dtype=np.int64)
    post_of[list(posts)] = list(posts.values())
    return LaneTimes(
        start_of,
        start_of + duration,
        np.array(arrived, dtype=np.int64),
        np.array(idle_since, dtype=np.int64),
        post_of,
    )


def issue_order(schedule: Schedule) -> IntArray:
    """All rows, the lists' orders kept, in an order in which whatever a row waits for stands before it.

    Raises:
        DeadlockError: There is none.
    """
    return _gathered(schedule.links, fenced_pairs(schedule)).order


def fenced_pairs(schedule: Schedule) -> IntArray:
    """The rows behind a fence that are the first part of one half of a pair, the row behind them that of the other.

    Both wait for the inputs of both.
    """
    begins, forward = _begins_stage(schedule), code_kind(schedule.code) == Kind.F
    with_other = schedule.fences[:-1] & begins[:-1] & begins[1:] & (forward[:-1] != forward[1:])
    return np.flatnonzero(with_other)


def _begins_stage(schedule: Schedule) -> BoolArray:
    """Which rows are the first part of a stage's forward or backward; shape (n,)."""
    code, chain = schedule.code, schedule.chain
    kind, place, stage = code_kind(code), chain.place(code), code_stage(code)
    forward = (kind == Kind.F) & (place == chain.first[stage])
    backward = ((kind == Kind.B) | (kind == Kind.I)) & (place == chain.first[stage + 1] - 1)
    begins: BoolArray = forward | backward
    return begins


def _gathered(links: Links, row: IntArray) -> Links:
    """The graph in which some rows, which take one input, wait for that of the row behind them as well."""
    inputs, gradients = links.inputs.copy(), links.gradients.copy()
    for column in (inputs, gradients):
        beside = column[row + 1]
        column[row[beside != NO_ROW]] = beside[beside != NO_ROW]
    return replace(links, inputs=inputs, gradients=gradients)


def _travel(schedule: Schedule, costs: Costs) -> IntArray:
    """ns that what each row takes travels between ranks; shape (n,)."""
    transfers = schedule.transfers
    travel = np.zeros(len(schedule), dtype=np.int64)
    travel[transfers.consumer] = costs.transfer_times(transfers.sender, transfers.receiver)
    return travel
