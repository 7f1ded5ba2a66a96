"""A rank's sends and receives, of gloo and of NCCL, with what was recorded of them.

gloo's ranges (`gloo:recv`) last from posting to the end of waiting. NCCL's receive is a kernel that spins from its
start to the data's being there; the operation that posts it (`c10d::recv_`, or `nccl:recv 1<-0`) stands on the host
before it, one or, where they were batched, several to a kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipetrace.trace.reading.device import Device
from pipetrace.trace.reading.events import Events

_C10D = {"c10d::send": True, "c10d::recv_": False, "c10d::isend": True, "c10d::irecv_": False}
_GLOO = {"gloo:send": True, "gloo:recv": False}
_NCCL = re.compile(r"nccl:(?:(send) (\d+)->(\d+)|(recv) (\d+)<-(\d+))")


class Transfer(NamedTuple):
    """A send or receive; Unix times in ns.

    Args:
        posted: When the host posted it.
        start: When it began on its device; where it has none, when it was posted.
        end: When it was over: for gloo when the wait for it ended.
        is_send: Or else a receive.
        peer: Rank at the other end, in its process group; None where that was not recorded.
        on_device: Whether start and end are a kernel's.
    """

    posted: int
    start: int
    end: int
    is_send: bool
    peer: int | None
    on_device: bool


@dataclass(frozen=True)
class Transfers:
    """All of a rank, in the order of posting.

    Args:
        all: What was found.
        thread: On which most were posted, a place in `Events.threads`; None where there are none.
    """

    all: tuple[Transfer, ...]
    thread: int | None


def transfers_of(events: Events, device: Device | None) -> Transfers:
    """The sends and receives of a rank."""
    posts = _posts(events)
    threads = [post.thread for post in posts]
    thread = max(set(threads), key=threads.count) if threads else None
    if device is not None and device.is_p2p.any():
        return Transfers(tuple(sorted(_with_kernels(events, device, posts))), thread)
    waits = {is_send: _ranges(events, name) for name, is_send in _GLOO.items()}
    if thread is None and (every := [row for of in waits.values() for row in of]):
        thread = int(events.thread[every[0]])
    found = []
    for is_send, rows in waits.items():
        of_kind = [post for post in posts if post.is_send == is_send]
        # A range begins while its operation posts it, one for one.
        paired = len(of_kind) == len(rows)
        for i, row in enumerate(rows):
            start, end = int(events.start[row]), int(events.end[row])
            posted = min(of_kind[i].start, start) if paired else start
            found.append(Transfer(posted, posted, end, is_send, of_kind[i].peer if paired else None, False))
    if not found:
        found = [Transfer(p.start, p.start, p.end, p.is_send, p.peer, False) for p in posts]
    return Transfers(tuple(sorted(found)), thread)


class _Post(NamedTuple):
    start: int
    end: int
    is_send: bool
    peer: int | None
    thread: int


def _ranges(events: Events, name: str) -> list[int]:
    rows = np.flatnonzero(events.called([name]) & ~events.in_categories(["gpu_user_annotation"]))
    ordered: list[int] = rows[np.lexsort((events.end[rows], events.start[rows]))].tolist()
    return ordered


def _posts(events: Events) -> list[_Post]:
    """What the host posted: torch's operations, or where they were not recorded NCCL's ranges."""
    rows = np.flatnonzero(events.called(_C10D) & events.in_categories(["cpu_op"])).tolist()
    posts = [
        _Post(int(events.start[row]), int(events.end[row]), _C10D[events.names[events.name[row]]], peer, thread)
        for row in rows
        for peer, thread in [(_peer_of_inputs(events, row), int(events.thread[row]))]
    ]
    if not posts:
        for row in np.flatnonzero(
            events.of_names([_NCCL.fullmatch(name) is not None for name in events.names])
            & ~events.in_categories(["gpu_user_annotation"])
        ).tolist():
            match = _NCCL.fullmatch(events.names[events.name[row]])
            assert match is not None  # the rows were chosen by it
            peer = int(match[3] or match[6])
            posts.append(
                _Post(int(events.start[row]), int(events.end[row]), match[1] is not None, peer, int(events.thread[row]))
            )
    return sorted(posts)


def _peer_of_inputs(events: Events, row: int) -> int | None:
    """c10d::send(tensors, group, peer, tag), recorded with record_shapes."""
    args = events.details.get(row)
    inputs = None if args is None else args.inputs
    if isinstance(inputs, list) and len(inputs) >= 3 and re.fullmatch(r"\d{1,6}", str(inputs[2])):
        return int(str(inputs[2]))
    return None


def _with_kernels(events: Events, device: Device, posts: list[_Post]) -> list[Transfer]:
    """Each posted transfer with the next kernel that was launched for one; kernels without a post stand for one."""
    kernels = np.flatnonzero(device.is_p2p).tolist()
    launched = device.launched[kernels]
    told = [_told(events, int(device.row[kernel])) for kernel in kernels]
    found, taken = [], set()
    for post in posts:
        at = int(np.searchsorted(launched, post.start))
        # A kernel that says what it is belongs to one post of that kind; one that does not may carry a batch.
        while at < len(kernels) and told[at] is not None and (told[at] != post.is_send or kernels[at] in taken):
            at += 1
        if at >= len(kernels):
            continue
        kernel = kernels[at]
        taken.add(kernel)
        found.append(
            Transfer(
                post.start,
                int(device.start[kernel]),
                int(device.end[kernel]),
                post.is_send,
                post.peer if post.peer is not None else _peer_of_kernel(events, int(device.row[kernel]), post.is_send),
                True,
            )
        )
    for kernel, is_send in zip(kernels, told, strict=True):
        if kernel not in taken and is_send is not None:
            peer = _peer_of_kernel(events, int(device.row[kernel]), is_send)
            posted, start, end = (int(times[kernel]) for times in (device.launched, device.start, device.end))
            found.append(Transfer(posted, start, end, is_send, peer, True))
    return found


def _told(events: Events, row: int) -> bool | None:
    """Whether a kernel says that it sends (True) or receives (False)."""
    args = events.details.get(row)
    return {"send": True, "recv": False, "receive": False}.get(str(args.collective)) if args is not None else None


def _peer_of_kernel(events: Events, row: int, is_send: bool) -> int | None:
    args = events.details.get(row)
    peer = None if args is None else args.destination if is_send else args.source
    return peer if type(peer) is int and 0 <= peer < 1 << 20 else None
