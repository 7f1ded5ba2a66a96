"""What one rank does in a step: its rows of the schedule, with every hand-over spelled out.

Everything follows from `schedule.links`: which row's output goes to which row, and whether the two stand on different
ranks. Nothing here knows of neighbours, so that any placement runs: where producer and consumer share a rank, the
value is handed over in place.

A value is named by its consumer's receive: `1RECV_F3` is the input of `1F3`, whether or not it travels. In a schedule
in parts of layers it is the input of the stage's first part; from part to part a stage hands over itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipetrace.action import (
    COMPUTE_KINDS,
    NO_ACTION,
    Action,
    IntArray,
    Kind,
    code_kind,
    code_microbatch,
    code_pipe,
    code_stage,
    whole_stage,
    with_kind,
)
from pipetrace.errors import RunError
from pipetrace.links import NO_ROW
from pipetrace.schedule import Schedule

MAX_TAG = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """A value that travels from one rank to another.

    Args:
        send, receive: Its two ends.
        sender, receiver: Pipeline ranks.
        tag: The same on both ends and unique in a step, so that receives may be posted in any order.
    """

    send: Action
    receive: Action
    sender: int
    receiver: int
    tag: int


@dataclass(frozen=True, slots=True)
class Half:
    """One F, B, I or W, and where its input and output go.

    Args:
        action: What is computed.
        takes: Code of the receive whose value it takes, or `NO_ACTION`.
        gives: Code of the receive that names its output, or `NO_ACTION` where nobody takes it.
        sends: How the output travels; None where it stays on the rank.
    """

    action: Action
    takes: int
    gives: int
    sends: Transfer | None


@dataclass(frozen=True, slots=True)
class Op:
    """One row of a rank's list: an action, or two of an overlapped pair.

    Args:
        row: Row of the schedule.
        text: Of the action or the pair.
        halves: What is computed, in this order.
        receives: What must have arrived from other ranks before.
        after: Rows of the same rank that must have run before.
    """

    row: int
    text: str
    halves: tuple[Half, ...]
    receives: tuple[Transfer, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What one rank does in a step, in list order."""

    rank: int
    ops: tuple[Op, ...]

    @property
    def receives(self) -> list[Transfer]:
        """All receives, in the order of their use."""
        return [transfer for op in self.ops for transfer in op.receives]

    @property
    def sends(self) -> list[Transfer]:
        """All sends, in list order."""
        return [half.sends for op in self.ops for half in op.halves if half.sends is not None]


def compile_rank(schedule: Schedule, rank: int) -> Program:
    """The program of one rank.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    links = schedule.links
    backward_code: IntArray = np.where(schedule.partner != NO_ACTION, schedule.partner, schedule.code)
    columns = {
        Kind.RECV_F: (links.inputs, _consumers(links.inputs), schedule.code),
        Kind.RECV_B: (links.gradients, _consumers(links.gradients), backward_code),
    }

    def transfer(kind: Kind, producer: int, consumer: int) -> Transfer:
        codes = columns[kind][2]
        receive = with_kind(whole_stage(int(codes[consumer])), kind)
        send = with_kind(whole_stage(int(codes[producer])), Kind.SEND_F if kind is Kind.RECV_F else Kind.SEND_B)
        return Transfer(
            Action.from_code(send),
            Action.from_code(receive),
            int(links.rank[producer]),
            int(links.rank[consumer]),
            tag_of(receive, schedule.stages, schedule.microbatches),
        )

    def half(row: int, code: int) -> tuple[Half, Transfer | None]:
        action = Action.from_code(code)
        if action.kind is Kind.W:
            return Half(action, NO_ACTION, NO_ACTION, None), None
        kind = Kind.RECV_F if action.kind is Kind.F else Kind.RECV_B
        producers, consumers, codes = columns[kind]

        def of_other_stage(row: int) -> int:
            """The row, where it is of another stage: between the parts of a stage it hands over itself."""
            return NO_ROW if row == NO_ROW or code_stage(int(codes[row])) == action.stage else row

        producer, consumer = of_other_stage(int(producers[row])), of_other_stage(int(consumers[row]))
        takes, received = NO_ACTION, None
        if producer != NO_ROW:
            takes = with_kind(whole_stage(code), kind)
            received = transfer(kind, producer, row) if links.rank[producer] != rank else None
        gives, sent = NO_ACTION, None
        if consumer != NO_ROW:
            gives = with_kind(whole_stage(int(codes[consumer])), kind)
            sent = transfer(kind, row, consumer) if links.rank[consumer] != rank else None
        return Half(action, takes, gives, sent), received

    ops = []
    for row in range(int(schedule.first[rank]), int(schedule.first[rank + 1])):
        codes = [int(schedule.code[row])]
        if schedule.partner[row] != NO_ACTION:
            codes.append(int(schedule.partner[row]))
        halves, received = zip(*(half(row, code) for code in codes), strict=True)
        needed = {int(column[row]) for column in (links.inputs, links.local, links.gradients)} - {NO_ROW}
        after = tuple(sorted(producer for producer in needed if links.rank[producer] == rank))
        ops.append(Op(row, links.text(row), halves, tuple(r for r in received if r is not None), after))
    return Program(rank, tuple(ops))


def _consumers(producers: IntArray) -> IntArray:
    """For each row the row that takes its output, or `NO_ROW`; at most one does."""
    consumers: IntArray = np.full(producers.size, NO_ROW, dtype=np.int64)
    takes = np.flatnonzero(producers != NO_ROW)
    consumers[producers[takes]] = takes
    return consumers


def tag_of(receive: int, stages: int, microbatches: int) -> int:
    """The tag of the transfer that ends in a receive: one number for each (pipe, kind, stage, microbatch)."""
    direction = 2 * code_pipe(receive) + (code_kind(receive) == Kind.RECV_B)
    return (direction * stages + code_stage(receive)) * microbatches + code_microbatch(receive)


def preflight(schedule: Schedule, *, tags: bool = True, reorder: bool = False) -> list[Program]:
    """Everything that can be known before a process starts; the programs of all ranks.

    Args:
        schedule: What is to be run.
        tags: Whether transfers carry tags.
        reorder: Whether ranks may leave the list order.

    Raises:
        ScheduleError: The schedule is not valid.
        DeadlockError: The ranks' lists wait for each other.
        RunError: A transfer has only one end, tags are not unique, or there are none and a pair of ranks needs them,
            or something cannot be run yet.
    """
    schedule.validate()
    if schedule.placement.pipes * 2 * schedule.stages * schedule.microbatches > MAX_TAG:
        raise RunError(
            f"{schedule.stages} stages and {schedule.microbatches} microbatches need more tags than there are",
            "run fewer microbatches in a step",
        )
    unknown = set(np.unique(code_kind(schedule.code)).tolist()) - {int(kind) for kind in COMPUTE_KINDS}
    if unknown:
        raise RunError(f"{Kind(min(unknown)).name} cannot be run from a list", "communication is derived, leave it out")
    programs = [compile_rank(schedule, rank) for rank in range(schedule.ranks)]
    check_transfers(programs)
    if not tags:
        if reorder:
            raise RunError(
                "without tags values are taken in the order of the list, which --wait dataflow may leave",
                "keep the order with --no-reorder, or leave out no-tags",
            )
        check_untagged(programs)
    return programs


def check_transfers(programs: Sequence[Program]) -> None:
    """Checks that every send has its receive and the other way round, and that no tag is used twice for a pair.

    Raises:
        RunError: Naming the transfer.
    """
    sends = Counter(transfer for program in programs for transfer in program.sends)
    receives = Counter(transfer for program in programs for transfer in program.receives)
    for one, other, what in ((sends, receives, "send"), (receives, sends, "receive")):
        for transfer in one - other:
            text = transfer.send if what == "send" else transfer.receive
            raise RunError(
                f"{text} between ranks {transfer.sender} and {transfer.receiver} is a {what} without its other end"
            )
    tags = Counter((transfer.sender, transfer.receiver, transfer.tag) for transfer in sends.elements())
    for (sender, receiver, tag), times in tags.items():
        if times > 1:
            raise RunError(f"{times} transfers from rank {sender} to rank {receiver} share the tag {tag}")


def check_untagged(programs: Sequence[Program]) -> None:
    """Checks that between any two ranks values are sent in the order in which they are received.

    Without tags the first that is sent meets the first receive that was posted, whatever either is for.

    Raises:
        RunError: Naming the ranks and what would be swapped.
    """
    for sender in programs:
        for receiver in programs:
            sent = [transfer for transfer in sender.sends if transfer.receiver == receiver.rank]
            received = [transfer for transfer in receiver.receives if transfer.sender == sender.rank]
            for one, other in zip(sent, received, strict=True):
                if one != other:
                    raise RunError(
                        f"without tags rank {receiver.rank} would take {one.send} of rank {sender.rank} for "
                        f"{other.receive}: they are not received in the order in which they are sent",
                        "leave out no-tags, or give --no-preflight as well to see what comes of it",
                    )
