"""Sends and receives into the lists, and out of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipetrace.action import NO_ACTION
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.links import longest_path
from pipetrace.passes.lists import Entry, check_whole_stages, with_lists
from pipetrace.schedule import Schedule


def add_communication(schedule: Schedule, costs: Costs | None = None) -> Schedule:
    """Lists every send and receive.

    A SEND stands right behind what makes its data. Its RECV is listed at the same moment on the other rank: behind
    what has ended there by then, before what is still running, so that nothing is posted late. As each transfer is
    listed on both ranks at once, every two ranks list theirs in the same order, both ways together, and the lists run
    on one ordered channel a pair without a hang, even where nothing is buffered. torch's lowering to compute_comms
    lists at once too, but counts every action as one step where this one takes simulated times.

    Args:
        schedule: Valid, without communication in its lists.
        costs: For the moments at which actions end; F = I = W = 1 ms and free transfers when None.

    Returns:
        The schedule with a SEND and a RECV for each transfer between ranks.

    Raises:
        ScheduleError: The schedule is not valid or in parts of layers, or lists communication already.
        DeadlockError: The ranks' lists wait for each other.
    """
    check_whole_stages(schedule)
    if schedule.has_communication:
        raise ScheduleError(
            f"{schedule.name} lists its sends and receives already",
            "passes.remove_communication takes them out",
        )
    costs = costs or Costs()
    links, transfers = schedule.links, schedule.transfers
    # What costs nothing takes a moment here, so that no consumer ends with its producer. An overlapped pair gives
    # both outputs at its end, since a SEND cannot stand inside it.
    duration = np.maximum(costs.durations(schedule), 1)
    input_delay, gradient_delay = (
        costs.transfer_times(links.rank[producer], links.rank) * links.crosses(producer)
        for producer in (links.inputs, links.gradients)
    )
    end = duration + longest_path(
        links,
        duration,
        input_delay=input_delay,
        gradient_delay=gradient_delay,
    )
    leaving = np.searchsorted(transfers.producer, np.arange(len(schedule) + 1)).tolist()
    sends, receives, receivers = transfers.send.tolist(), transfers.receive.tolist(), transfers.receiver.tolist()
    codes, partners, ranks = schedule.code.tolist(), schedule.partner.tolist(), links.rank.tolist()
    lists: list[list[Entry]] = [[] for _ in range(schedule.ranks)]
    # At one moment what began last comes first: in a circle of ranks that is where a receive is early by least.
    order = np.lexsort((duration, end))
    for together in np.split(order, np.flatnonzero(np.diff(end[order])) + 1):
        for row in _receivers_first({ranks[row]: row for row in together.tolist()}, leaving, receivers):
            mine = lists[ranks[row]]
            mine.append((codes[row], partners[row]))
            for i in range(leaving[row], leaving[row + 1]):
                mine.append((sends[i], NO_ACTION))
                lists[receivers[i]].append((receives[i], NO_ACTION))
    return with_lists(schedule, lists)


def _receivers_first(rows: dict[int, int], leaving: list[int], receivers: list[int]) -> Iterator[int]:
    """Rows that end at one moment, by rank: what receives from another of them before it, so that its RECV goes
    behind what has ended; in a circle of ranks one must receive early."""
    left = dict(rows)
    for rank in rows:
        path = [left.pop(rank)] if rank in left else []
        while path:
            row = path[-1]
            ahead = next((r for r in receivers[leaving[row] : leaving[row + 1]] if r in left), None)
            if ahead is None:
                yield path.pop()
            else:
                path.append(left.pop(ahead))


def remove_communication(schedule: Schedule) -> Schedule:
    """Takes sends and receives out of the lists, so that they are derived again; what had none stays as it is."""
    return schedule.compute_only()
