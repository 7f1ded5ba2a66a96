"""Values between ranks over channels, where messages have no tags: see `pipetrace.execute.channels`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from pipetrace.execute.channels import Channel, channel_of
from pipetrace.execute.p2p import NEVER, GroupTransport, Pending, Store
from pipetrace.execute.program import Transfer


class ChannelTransport(GroupTransport):
    """A process group for each channel, beside those of `GroupTransport`, which see to everything else.

    Args:
        wanted: All channels of a replica, the same on every rank.
        rank, ranks, meeting, groups, first, backend: As in `GroupTransport`.
        per_replica: Ranks of a replica.
        device: Where what travels lies.
    """

    def __init__(
        self,
        wanted: Sequence[Channel],
        rank: int,
        ranks: int,
        meeting: str | Store,
        groups: Sequence[tuple[int, ...]] = (),
        *,
        first: int = 0,
        per_replica: int,
        backend: str,
        device: torch.device,
    ) -> None:
        super().__init__(rank, ranks, meeting, groups, first=first, backend=backend)
        self._channels: dict[Channel, dist.ProcessGroup] = {}
        # Every rank makes every group, in one order: torch wants it so.
        for start in range(0, ranks, per_replica):
            for channel in wanted:
                made = dist.new_group([start + channel.sender, start + channel.receiver], timeout=NEVER)
                if start == first and isinstance(made, dist.ProcessGroup):
                    self._channels[channel] = made
        self._connect(rank, device)

    def _connect(self, rank: int, device: torch.device) -> None:
        """Sends a number through every channel, in one order on all ranks.

        Over NCCL two ranks connect at their first transfer, and each stands still until the other has come to it. Ranks
        that post all their receives first would so wait for each other for ever.
        """
        for channel, group in self._channels.items():
            number = torch.zeros(1, device=device)
            sends = rank == self._first + channel.sender
            work = (
                dist.isend(number, self._first + channel.receiver, group=group)
                if sends
                else dist.irecv(number, self._first + channel.sender, group=group)
            )
            if work is not None:
                work.wait()

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`."""
        work = dist.isend(value, self._first + transfer.receiver, group=self._channels[channel_of(transfer)])
        if work is None:
            raise RuntimeError(f"rank {transfer.sender} is not in the process group")
        return work

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`."""
        work = dist.irecv(buffer, self._first + transfer.sender, group=self._channels[channel_of(transfer)])
        if work is None:
            raise RuntimeError(f"rank {transfer.receiver} is not in the process group")
        return work
