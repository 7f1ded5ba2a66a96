"""What a rank is to do in a step, with what it waits for and what it sends on: as a schedule has it, or its labels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pipetrace.action import NO_ACTION, Kind, code_kind
from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.reading.model import RankStep, Span
from pipetrace.trace.reading.p2p import Transfer


class Wanted(NamedTuple):
    """An action that a rank is to do.

    Args:
        code: The action.
        receive: Code of the receive that it waits for, or `NO_ACTION`.
        source: Rank that sends it; -1 where there is none.
        send: Code of the send of what it makes, or `NO_ACTION`.
        destination: Rank that it goes to; -1 where there is none.
    """

    code: int
    receive: int = NO_ACTION
    source: int = -1
    send: int = NO_ACTION
    destination: int = -1

    @property
    def is_backward(self) -> bool:
        """Whether autograd runs it."""
        return code_kind(self.code) != Kind.F


def wanted_of(schedule: Schedule) -> list[list[Wanted]]:
    """The list of every rank.

    Raises:
        TraceError: The schedule has what cannot be found without labels.
        ScheduleError: It is not valid.
    """
    schedule = schedule.compute_only()
    pairs = int((schedule.partner != NO_ACTION).sum())
    if pairs:
        raise TraceError(
            f"{schedule.name} overlaps {pairs} pairs of a forward and a backward: which operation belongs to which "
            "cannot be told without labels",
            "record with labels, as PP:(0F1;0B0)OVERLAP_F_B",
        )
    transfers = schedule.transfers
    receives: dict[int, tuple[int, int]] = {}
    sends: dict[int, tuple[int, int]] = {}
    for producer, consumer, send, receive, sender, receiver in zip(
        *(
            column.tolist()
            for column in (
                transfers.producer,
                transfers.consumer,
                transfers.send,
                transfers.receive,
                transfers.sender,
                transfers.receiver,
            )
        ),
        strict=True,
    ):
        receives[consumer] = receive, sender
        sends[producer] = send, receiver
    codes, first = schedule.code.tolist(), schedule.first.tolist()
    nothing = NO_ACTION, -1
    return [
        [Wanted(codes[row], *receives.get(row, nothing), *sends.get(row, nothing)) for row in range(begin, end)]
        for begin, end in pairwise(first)
    ]


def attach_in_order(step: RankStep, wanted: Sequence[Wanted], transfers: Sequence[Transfer]) -> str | None:
    """Gives a step's transfers, of which nothing says what they carry, to its actions.

    Where all say whom they go to, they are taken in order between the two ranks; else in the order of the rank's list,
    as an executor posts them that keeps to its list.

    Args:
        step: Is added to.
        wanted: The rank's list.
        transfers: Those of the step, in the order of posting.

    Returns:
        Why that cannot be done; None where it was.
    """
    for is_send, verb in ((False, "receives"), (True, "sends")):
        given = [t for t in transfers if t.is_send == is_send]
        codes = [(w.send, w.destination) if is_send else (w.receive, w.source) for w in wanted]
        codes = [pair for pair in codes if pair[0] != NO_ACTION]
        if not given and is_send:
            continue
        if len(given) != len(codes):
            return f"{len(given)} {verb} were recorded where {len(codes)} are needed"
        for transfer, code in zip(given, _in_order(given, codes), strict=True):
            step.posts[code] = transfer.start
            if not is_send:
                step.arrivals[code] = Span(waited_from(step, transfer), transfer.end)
    return None


def _in_order(given: Sequence[Transfer], codes: Sequence[tuple[int, int]]) -> list[int]:
    peers = {peer for _, peer in codes}
    of_peer = {peer: [code for code, p in codes if p == peer] for peer in peers}
    seen = [transfer.peer for transfer in given]
    if all(peer is not None and seen.count(peer) == len(of_peer.get(peer, ())) for peer in set(seen)):
        queues = {peer: iter(of_peer[peer]) for peer in peers}
        return [next(queues[peer]) for peer in seen if peer is not None]
    return [code for code, _ in codes]


def waited_from(step: RankStep, transfer: Transfer) -> int:
    """Since when a rank stood idle for a receive; `UNKNOWN` where it computed until it was there."""
    before = [c.end for c in step.compute if c.start < transfer.end]
    since = max([transfer.start, *(end for end in before[-1:])])
    return since if since < transfer.end else UNKNOWN
