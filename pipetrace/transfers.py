"""The data that ranks send each other in a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, with_kind
from pipetrace.costs import Costs
from pipetrace.schedule import Schedule


class Transfer(NamedTuple):
    """One transfer; see `Transfers`."""

    source: int
    target: int
    sender: int
    receiver: int
    send: int
    receive: int
    time: int
    ready: int


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """Every transfer between ranks; columns of shape (k,).

    Args:
        source, target: Row that makes the data, and row that needs it.
        sender, receiver: Their ranks.
        send, receive: Codes of the transfer on either side: SEND_F and RECV_F for activations, SEND_B and RECV_B for
            their gradients.
        time: ns from its start to its arrival.
        ready: ns from its source row's start until it can leave.
    """

    source: IntArray
    target: IntArray
    sender: IntArray
    receiver: IntArray
    send: IntArray
    receive: IntArray
    time: IntArray
    ready: IntArray

    def rows(self) -> list[Transfer]:
        """One by one."""
        columns = (getattr(self, name).tolist() for name in Transfer._fields)
        return [Transfer(*row) for row in zip(*columns, strict=True)]


def transfers_of(schedule: Schedule, costs: Costs, forward_ready: IntArray, backward_ready: IntArray) -> Transfers:
    """The transfers of a schedule at given costs.

    Args:
        schedule: What is run.
        costs: What transfers take.
        forward_ready, backward_ready: ns from each row's start to its outputs; shape (n,).
    """
    links = schedule.links
    backward = np.where(schedule.partner != NO_ACTION, schedule.partner, schedule.code)
    times = costs.transfer_times(schedule.ranks)
    parts = []
    for producers, ready, code, send, receive in (
        (links.inputs, forward_ready, schedule.code, Kind.SEND_F, Kind.RECV_F),
        (links.gradients, backward_ready, backward, Kind.SEND_B, Kind.RECV_B),
    ):
        target = np.flatnonzero(links.crosses(producers))
        source = producers[target]
        sender, receiver = links.rank[source], links.rank[target]
        columns = (source, target, sender, receiver, with_kind(code[source], send), with_kind(code[target], receive))
        parts.append((*columns, times[sender, receiver], ready[source]))
    return Transfers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
