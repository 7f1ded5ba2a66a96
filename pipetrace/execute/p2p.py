"""Values between ranks, each in a process of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from pipetrace.execute.program import Transfer

# Stalls are found by the supervisor, who can also say where; gloo's own time-out must not come first.
NEVER = timedelta(days=7)


class Store(Protocol):
    """One of torch's stores, where processes leave word for each other."""

    def set(self, key: str, value: str) -> None:
        """Leaves a word."""

    def get(self, key: str) -> bytes:
        """Waits for a word to be there."""


class Pending(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Returns when the value has arrived, or has been taken."""


class Transport(Protocol):
    """How values travel. What is posted must stay as it is to the end of the step."""

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Pending:
        """Offers a contiguous tensor; never blocks."""

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:
        """Makes room for a value of exactly the buffer's shape and dtype; never blocks."""

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """Puts the sum over `ranks`, this one among them, into a contiguous tensor; returns when it is there."""

    def barrier(self) -> None:
        """Returns when all ranks are here."""


class GroupTransport:
    """torch.distributed's process groups between processes, as they are for gloo.

    Gloo is rendezvous: a send completes only when its receive is posted, so nothing here waits for a send. Tags keep
    transfers of one pair apart in whatever order they are posted.

    Args:
        rank, ranks: Which of how many, over all replicas.
        meeting: Where all ranks meet: file:// and a file that all see, not there yet, or a store.
        groups: Sets of ranks that add values up or exchange them, in the same order on every rank.
        first: Global rank of this replica's pipeline rank 0.
        tags: Whether transfers carry tags; without, gloo matches those of a pair in the order of posting.
        backend: "gloo", or "nccl", which has no tags.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        meeting: str | Store,
        groups: Sequence[tuple[int, ...]] = (),
        *,
        first: int = 0,
        tags: bool = True,
        backend: str = "gloo",
    ) -> None:
        self._tags = tags
        # A set name is the user's choice; otherwise the loopback, as a host name may resolve to a dead interface.
        loopback: Sequence[str] = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
        if loopback:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
        where: dict[str, Any] = {"init_method" if isinstance(meeting, str) else "store": meeting}
        dist.init_process_group(
            backend,
            **where,
            rank=rank,
            world_size=ranks,
            timeout=NEVER,
        )
        # Every rank makes every group: torch wants it so.
        self._first = first
        made = {members: dist.new_group(list(members), timeout=NEVER) for members in groups}
        self._groups = {members: group for members, group in made.items() if isinstance(group, dist.ProcessGroup)}
        # NCCL connects a group at its first use, which is not to fall into a step.
        for group in self._groups.values():
            dist.barrier(group=group)

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`."""
        work = dist.isend(value, self._first + transfer.receiver, tag=transfer.tag if self._tags else 0)
        if work is None:
            raise RuntimeError(f"rank {transfer.sender} is not in the process group")
        return work

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`."""
        work = dist.irecv(buffer, self._first + transfer.sender, tag=transfer.tag if self._tags else 0)
        if work is None:
            raise RuntimeError(f"rank {transfer.receiver} is not in the process group")
        return work

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """See `Transport`."""
        if len(ranks) > 1:
            dist.all_reduce(value, group=self._groups[ranks])

    def group(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        """The group that these ranks, this one among them, were given."""
        return self._groups[ranks]

    def gather(self, value: object) -> list[Any]:
        """What each rank gave, by global rank; returns when all have."""
        given: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(given, value)
        return given

    def barrier(self) -> None:
        """See `Transport`."""
        dist.barrier()
