"""The expert-parallel group of a pipeline rank: the same rank of every replica, and all-to-alls among them.

Every replica runs the same lists, so that the members of a group come to their all-to-alls in the same order and never
wait for each other in a circle.

A member that is a process of its own gives its rows and waits for the others'. Where all members are in one process
nobody may wait: there a stage says what it gives, an `Offer`, and is told later what came.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
import torch.distributed as dist

from pipetrace.execute.board import Line


def members_of(rank: int, ranks: int, replicas: int) -> tuple[int, ...]:
    """The global ranks of one pipeline rank's group; a global rank is replica × `ranks` + pipeline rank."""
    return tuple(replica * ranks + rank for replica in range(replicas))


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What a member brings to an all-to-all.

    Args:
        rows: Shape (sum of `sent`, width), for member 0 first.
        sent: How many go to each member.
        received: How many come from each.
    """

    rows: torch.Tensor
    sent: Sequence[int]
    received: Sequence[int]


Offering: TypeAlias = Generator[Offer, torch.Tensor, torch.Tensor | None]
"""Work with all-to-alls in it: yields each offer, is sent what came, shape (sum of `received`, width), returns what it
makes."""


class Exchange(Protocol):
    """All-to-alls among the replicas of one pipeline rank.

    Args:
        replica: Which member this is.
        replicas: How many there are.
    """

    @property
    def replica(self) -> int: ...

    @property
    def replicas(self) -> int: ...

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """Gives rows to every member and takes theirs.

        Args:
            rows: Shape (sum of `sent`, width), for member 0 first.
            sent: How many go to each member.
            received: How many come from each.

        Returns:
            What came, from member 0 first; shape (sum of `received`, width).
        """


class Alone:
    """One replica: what it gives it takes."""

    replica, replicas = 0, 1

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """See `Exchange`."""
        return rows


class InProcess:
    """A member of a group that is all in this process: `taken` moves the rows."""

    def __init__(self, replica: int, replicas: int) -> None:
        self.replica, self.replicas = replica, replicas

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """See `Exchange`.

        Raises:
            RuntimeError: Always; waiting here for the others, who come later in the same process, would never end.
        """
        raise RuntimeError("an all-to-all within one process is taken apart into what each member offers")


def taken(member: int, offers: Sequence[Offer]) -> torch.Tensor:
    """What one member takes of what all offer, copied on the device; shape (rows for it, width)."""
    mine = offers[member]
    room = mine.rows.new_empty(sum(mine.received), *mine.rows.shape[1:])
    parts = [offer.rows.split_with_sizes(list(offer.sent))[member] for offer in offers]
    for place, part in zip(room.split_with_sizes(list(mine.received)), parts, strict=True):
        place.copy_(part, non_blocking=True)
    return room


def through(exchange: Exchange, work: Offering) -> torch.Tensor | None:
    """Runs work whose all-to-alls go through an exchange, and returns what it makes."""
    try:
        offer = next(work)
        while True:
            offer = work.send(exchange.all_to_all(offer.rows, offer.sent, offer.received))
    except StopIteration as ended:
        made: torch.Tensor | None = ended.value
        return made


class GroupExchange:
    """All-to-alls over a process group of torch.distributed.

    Over gloo the calling thread waits for the others; over NCCL the stream that is current does.

    A workload is made with one before the ranks are connected, and uses it afterwards.

    Args:
        replica, replicas: Which of how many.
        line: Where the rank says that it waits for the others.
    """

    def __init__(self, replica: int, replicas: int, line: Line | None = None) -> None:
        self.replica, self.replicas = replica, replicas
        self._line = line
        self._group: dist.ProcessGroup | None = None

    def connect(self, group: dist.ProcessGroup) -> None:
        """Takes the group over which it goes."""
        self._group = group

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """See `Exchange`."""
        taken = rows.new_empty(sum(received), *rows.shape[1:])
        waiting: AbstractContextManager[None] = nullcontext() if self._line is None else self._line.exchanging()
        with waiting:
            dist.all_to_all_single(taken, rows.contiguous(), list(received), list(sent), group=self._group)
        return taken
