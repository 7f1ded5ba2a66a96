"""Schedule + costs → the ideal timeline.

Receives are posted ahead, sends block nobody: a transfer leaves when its data is ready. A rank
runs its list in order; an action starts when the one before it has ended and its inputs have arrived.
"""

from __future__ import annotations

import numpy as np

from pipetrace.action import IntArray, Kind, with_kind
from pipetrace.costs import Costs
from pipetrace.links import NO_ROW, longest_path
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Lane, Timeline


def simulate(schedule: Schedule, costs: Costs | None = None) -> Timeline:
    """The timeline of a schedule at given costs: the longest path through its graph.

    Args:
        schedule: What is run.
        costs: F = I = W = 1 ms and free transfers when None.

    Returns:
        A tile for each action (one for an overlapped pair) and, where transfers cost something, two for each transfer
        between ranks: the send on the sender and the receive on the receiver. Zero is the start of the step.

    Raises:
        ScheduleError: The schedule is not valid.
        DeadlockError: The ranks' lists wait for each other.
    """
    costs = costs or Costs()
    # Receives are posted ahead here, so where they stand in a list changes nothing.
    schedule = schedule.compute_only()
    links = schedule.links
    duration = costs.durations(schedule)
    forward_ready, backward_ready = costs.ready(schedule, duration)
    transfer = costs.transfer_times(schedule.ranks)
    input_crosses, gradient_crosses = links.crosses(links.inputs), links.crosses(links.gradients)
    start = longest_path(
        links,
        duration,
        forward_ready=forward_ready,
        backward_ready=backward_ready,
        input_delay=transfer[links.rank[links.inputs], links.rank] * input_crosses,
        gradient_delay=transfer[links.rank[links.gradients], links.rank] * gradient_crosses,
    )
    columns = {
        "rank": links.rank,
        "lane": np.full(start.size, Lane.COMPUTE, dtype=np.int64),
        "code": schedule.code,
        "partner": schedule.partner,
        "start": start,
        "end": start + duration,
        "posted": np.full(start.size, UNKNOWN, dtype=np.int64),
        "waited": np.full(start.size, UNKNOWN, dtype=np.int64),
    }
    if transfer.any():
        previous_end = _previous_end(links.first, columns["end"])
        backward_code = np.where(schedule.partner != 0, schedule.partner, schedule.code)
        for crosses, producers, ready, receiver_code, sends, receives in (
            (input_crosses, links.inputs, forward_ready, schedule.code, Kind.SEND_F, Kind.RECV_F),
            (gradient_crosses, links.gradients, backward_ready, backward_code, Kind.SEND_B, Kind.RECV_B),
        ):
            producer = producers[crosses]
            if (producer == NO_ROW).all():
                continue
            sender_code = schedule.code if sends is Kind.SEND_F else backward_code
            left = start[producer] + ready[producer]
            arrived = left + transfer[links.rank[producer], links.rank[crosses]]
            none = np.full(producer.size, UNKNOWN, dtype=np.int64)
            idle_since = previous_end[crosses]
            sent = {
                "rank": links.rank[producer],
                "lane": np.full(producer.size, Lane.SEND, dtype=np.int64),
                "code": with_kind(sender_code[producer], sends),
                "partner": np.zeros_like(producer),
                "start": left,
                "end": arrived,
                "posted": left,
                "waited": none,
            }
            received = {
                **sent,
                "rank": links.rank[crosses],
                "lane": np.full(producer.size, Lane.RECV, dtype=np.int64),
                "code": with_kind(receiver_code[crosses], receives),
                "posted": np.zeros_like(producer),
                "waited": np.where(idle_since < arrived, idle_since, UNKNOWN),
            }
            for tiles in (sent, received):
                columns = {name: np.concatenate([columns[name], tiles[name]]) for name in columns}
    return Timeline.from_columns(schedule.ranks, columns)


def _previous_end(first: IntArray, end: IntArray) -> IntArray:
    """For every row the end of the one before it on its rank; 0 for a rank's first."""
    previous = np.roll(end, 1)
    previous[first[:-1][np.diff(first) > 0]] = 0
    return previous
