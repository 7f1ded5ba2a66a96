"""When the parts of layers run: every rank has a lane for compute and one for all-to-alls.

Each lane runs its rows in list order. A row starts when its lane is free and its inputs are there, and where a fence
stands before it, not before both lanes have come to the end of what stands before it in the list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import IntArray, is_all_to_all
from pipetrace.costs import Costs
from pipetrace.links import NO_ROW
from pipetrace.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class LaneTimes:
    """Times of a schedule's rows, in ns from the start of the step; arrays of shape (n,).

    Args:
        start, end: Of each row.
        there: When what a row takes from another had arrived; 0 where it takes nothing.
        idle_since: Since when nothing but its input held a row up: its lane, and for an all-to-all the compute lane
            too, had run what stands before it in the list.
    """

    start: IntArray
    end: IntArray
    there: IntArray
    idle_since: IntArray


def lane_times(schedule: Schedule, costs: Costs) -> LaneTimes:
    """The earliest times of a schedule in parts of layers.

    Raises:
        ScheduleError: The schedule is not valid.
        DeadlockError: The lists wait for each other in a circle.
        CostError: The costs are of another schedule.
    """
    links, duration = schedule.links, costs.durations(schedule)
    order = links.order
    # A part waits for one other at most: a forward for the part before, a backward for the part behind. Its own
    # forward, or I, ran before it on the same lane.
    producer = np.where(links.inputs != NO_ROW, links.inputs, links.gradients)
    delay = np.where(producer == NO_ROW, 0, duration[producer] + _travel(schedule, costs))
    columns = (links.rank, is_all_to_all(links.code), schedule.fences, producer, delay, duration)
    steps = zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True)
    starts, idle_since = [0] * (duration.size + 1), [0] * duration.size  # the last place is that of `NO_ROW`
    compute, all_to_all = ([0] * schedule.ranks for _ in range(2))
    for row, rank, travels, fenced, before, by, lasts in steps:
        if fenced:
            compute[rank] = all_to_all[rank] = max(compute[rank], all_to_all[rank])
        lane = all_to_all if travels else compute
        starts[row] = start = max(lane[rank], starts[before] + by)
        idle_since[row] = max(compute[rank], lane[rank])
        lane[rank] = start + lasts
    start_of = np.array(starts, dtype=np.int64)
    there = start_of[producer] + delay
    return LaneTimes(start_of[:-1], start_of[:-1] + duration, there, np.array(idle_since, dtype=np.int64))


def _travel(schedule: Schedule, costs: Costs) -> IntArray:
    """ns that what each row takes travels between ranks; shape (n,)."""
    transfers = schedule.transfers
    travel = np.zeros(len(schedule), dtype=np.int64)
    travel[transfers.consumer] = costs.transfer_times(schedule.ranks)[transfers.sender, transfers.receiver]
    return travel
