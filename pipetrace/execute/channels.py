"""Values between ranks where messages have no tags, as over NCCL.

Without tags what was sent first is received first, so both ends of a channel must list their transfers in one order,
or values go astray and ranks hang. One channel for each direction between two ranks does not do: where stages lie in
a V, a rank's forwards of one stage and gradients of another go the same way, and are made in one order and needed in
another. So every (sender, receiver, pipe, direction of the pass) has a channel of its own, which over NCCL is a process
group with a communicator and a stream. Whether that is enough for a schedule is checked before anything starts, here,
without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pipetrace.action import Kind
from pipetrace.errors import RunError
from pipetrace.execute.program import Program, Transfer


class Channel(NamedTuple):
    """What runs in the order in which it was posted.

    Args:
        sender, receiver: Ranks.
        pipe: Whose values.
        kind: RECV_F or RECV_B.
    """

    sender: int
    receiver: int
    pipe: int
    kind: Kind


def channel_of(transfer: Transfer) -> Channel:
    """The channel through which a transfer goes."""
    return Channel(transfer.sender, transfer.receiver, transfer.receive.pipe, transfer.receive.kind)


def channels(programs: Sequence[Program]) -> list[Channel]:
    """All channels of a schedule, in one order on all ranks."""
    return sorted({channel_of(transfer) for program in programs for transfer in program.sends})


def check_channels(programs: Sequence[Program]) -> None:
    """Checks that both ends of every channel list their transfers in the same order.

    Args:
        programs: Of all ranks.

    Raises:
        RunError: Naming the channel's ranks, and the first transfer in which the orders part.
    """
    sent: dict[Channel, list[Transfer]] = {}
    needed: dict[Channel, list[Transfer]] = {}
    for program in programs:
        for listed, transfers in ((sent, program.sends), (needed, program.receives)):
            for transfer in transfers:
                listed.setdefault(channel_of(transfer), []).append(transfer)
    for channel in sorted(sent):
        for one, other in zip(sent[channel], needed.get(channel, []), strict=False):
            if one != other:
                raise RunError(
                    f"rank {channel.sender} sends {one.send} where rank {channel.receiver} awaits {other.receive}: "
                    "without tags, as over NCCL, the value would go astray",
                    "let both ranks list these transfers in one order, or run on CPUs, where messages have tags",
                )
