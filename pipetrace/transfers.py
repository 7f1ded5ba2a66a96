"""What travels between ranks, and the sends and receives that stand for it where a schedule lists them.

A transfer follows from the graph: a row takes what a row of another rank makes. A schedule says nothing of it in its
lists, and then it is derived; or it says all: a SEND on the producer's rank and a RECV on the consumer's, once for each
transfer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    SEND_KINDS,
    TRANSFER_KINDS,
    Action,
    BoolArray,
    IntArray,
    Kind,
    code_kind,
    whole_stage,
    with_kind,
)
from pipetrace.errors import ScheduleError
from pipetrace.links import NO_ROW, Links

_HINT = "a schedule has no SEND and RECV at all, and they are derived; or all of them"


@dataclass(frozen=True, eq=False)
class Transfers:
    """All transfers between ranks, ordered by the row that makes what travels; a pair's forward output comes first.

    Args:
        producer, consumer: Rows; shape (transfers,), as all columns.
        send, receive: Codes of its two ends.
        sender, receiver: Ranks.
        send_row, receive_row: Rows of its two ends where the schedule lists them, else `NO_ROW`.
    """

    producer: IntArray
    consumer: IntArray
    send: IntArray
    receive: IntArray
    sender: IntArray
    receiver: IntArray
    send_row: IntArray
    receive_row: IntArray

    def __len__(self) -> int:
        return self.producer.size


def is_transfer(code: IntArray) -> BoolArray:
    """Which codes are a send or receive; the shape of `code`."""
    which: BoolArray = np.isin(code_kind(code), [int(kind) for kind in TRANSFER_KINDS])
    return which


def find_transfers(links: Links) -> Transfers:
    """The transfers of a graph, and where their rows stand; whether they all stand is not looked at."""
    backward = np.where(links.partner != NO_ACTION, links.partner, links.code)
    parts = []
    for producers, codes, send, receive in (
        (links.inputs, links.code, Kind.SEND_F, Kind.RECV_F),
        (links.gradients, backward, Kind.SEND_B, Kind.RECV_B),
    ):
        consumer = np.flatnonzero(links.crosses(producers))
        producer = producers[consumer]
        # What travels is a whole stage's, also where a part of a layer makes it.
        sends, receives = (whole_stage(codes[ends]) for ends in (producer, consumer))
        parts.append((producer, consumer, with_kind(sends, send), with_kind(receives, receive)))
    producer, consumer, sends, receives = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(producer, kind="stable")
    producer, consumer, sends, receives = (column[order] for column in (producer, consumer, sends, receives))

    listed = np.flatnonzero(is_transfer(links.code))
    by_code = listed[np.argsort(links.code[listed], kind="stable")]
    return Transfers(
        producer,
        consumer,
        sends,
        receives,
        links.rank[producer],
        links.rank[consumer],
        _find(links.code, by_code, sends),
        _find(links.code, by_code, receives),
    )


def _find(code: IntArray, by_code: IntArray, wanted: IntArray) -> IntArray:
    """The row of each wanted code among the rows `by_code`, which are sorted by it; `NO_ROW` where there is none."""
    if not by_code.size:
        return np.full(wanted.size, NO_ROW, dtype=np.int64)
    at = by_code[np.minimum(np.searchsorted(code[by_code], wanted), by_code.size - 1)]
    return np.where(code[at] == wanted, at, NO_ROW)


def check_transfers(links: Links, transfers: Transfers, stages: int) -> None:
    """Checks the sends and receives of a schedule that lists any.

    Each transfer has its SEND after its producer and its RECV before its consumer, nothing within a rank is sent, and
    what one rank sends to another is received in the order in which it is sent, both ways by themselves.

    Args:
        links: The graph.
        transfers: Of `links`.
        stages: Of the model.

    Raises:
        ScheduleError: With rank, action and reason, for the first thing that is wrong.
    """
    rank, text = links.rank, links.text
    listed = np.flatnonzero(is_transfer(links.code))
    strays = np.setdiff1d(listed, np.concatenate([transfers.send_row, transfers.receive_row]))
    if strays.size:
        row = int(strays[0])
        raise ScheduleError(f"rank {rank[row]}: {text(row)} {_why_stray(links, row, stages)}", "leave it out")
    for rows, codes, ranks in (
        (transfers.send_row, transfers.send, transfers.sender),
        (transfers.receive_row, transfers.receive, transfers.receiver),
    ):
        absent = rows == NO_ROW
        if absent.any():
            at = int(np.argmax(absent))
            raise ScheduleError(
                f"rank {ranks[at]}: {Action.from_code(int(codes[at]))} is missing, though the schedule lists transfers",
                _HINT,
            )
    early = transfers.send_row < transfers.producer
    if early.any():
        at = int(np.argmax(early))
        row, producer = int(transfers.send_row[at]), int(transfers.producer[at])
        raise ScheduleError(f"rank {rank[row]}: {text(row)} stands before {text(producer)}, whose output it sends")
    late = transfers.receive_row > transfers.consumer
    if late.any():
        at = int(np.argmax(late))
        row, consumer = int(transfers.receive_row[at]), int(transfers.consumer[at])
        raise ScheduleError(
            f"rank {rank[row]}: {text(row)} stands after {text(consumer)}, which takes what it receives"
        )
    order = np.lexsort((transfers.send_row, transfers.receiver, transfers.sender))
    first, second = order[:-1], order[1:]
    crossed = (
        (transfers.sender[first] == transfers.sender[second])
        & (transfers.receiver[first] == transfers.receiver[second])
        & (transfers.receive_row[first] > transfers.receive_row[second])
    )
    if crossed.any():
        at = int(np.argmax(crossed))
        one, other = int(first[at]), int(second[at])
        raise ScheduleError(
            f"rank {transfers.receiver[one]}: {text(int(transfers.receive_row[other]))} stands before "
            f"{text(int(transfers.receive_row[one]))}, but rank {transfers.sender[one]} has "
            f"{text(int(transfers.send_row[one]))} before {text(int(transfers.send_row[other]))}",
            "what one rank sends to another is received in the order in which it is sent",
        )


def _why_stray(links: Links, row: int, stages: int) -> str:
    action = Action.from_code(int(links.code[row]))
    sends = action.kind in SEND_KINDS
    peer = action.stage + (1 if action.kind in (Kind.SEND_F, Kind.RECV_B) else -1)
    verb = "sends to" if sends else "receives from"
    if not 0 <= peer < stages:
        return f"{verb} stage {peer}, but the stages are 0 to {stages - 1}"
    return f"{verb} stage {peer}, which its own rank holds"


def with_sends(links: Links, transfers: Transfers) -> Links:
    """The graph in which a consumer waits for the listed SEND instead of for what is sent, to find deadlocks in."""
    inputs, gradients = links.inputs.copy(), links.gradients.copy()
    forward = code_kind(transfers.send) == Kind.SEND_F
    inputs[transfers.consumer[forward]] = transfers.send_row[forward]
    gradients[transfers.consumer[~forward]] = transfers.send_row[~forward]
    return replace(links, inputs=inputs, gradients=gradients)
