"""All ranks of all replicas in this process, a thread each: transfers, sums and all-to-alls among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import torch

from pipetrace.execute.program import Transfer
from tests.execute.in_process import Arrived

GIVE_UP_S = 300


class _Box:
    """Room for one transfer, step after step."""

    def __init__(self) -> None:
        self.values: SimpleQueue[torch.Tensor] = SimpleQueue()


class _Letter:
    def __init__(self, box: _Box, buffer: torch.Tensor) -> None:
        self._box, self._buffer = box, buffer

    def wait(self) -> None:
        self._buffer.copy_(self._box.values.get(timeout=GIVE_UP_S))


class _Table:
    """Where members come together: each gives, all take."""

    def __init__(self, members: int) -> None:
        self.barrier = threading.Barrier(members)
        self.given: list[Sequence[torch.Tensor]] = [()] * members

    def meet(self, member: int, values: Sequence[torch.Tensor]) -> list[Sequence[torch.Tensor]]:
        self.given[member] = values
        self.barrier.wait(GIVE_UP_S)
        taken = list(self.given)
        self.barrier.wait(GIVE_UP_S)
        return taken


class Net:
    """What connects the ranks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._boxes: dict[tuple[int, int], _Box] = {}
        self._tables: dict[object, _Table] = {}

    def box(self, replica: int, tag: int) -> _Box:
        with self._lock:
            return self._boxes.setdefault((replica, tag), _Box())

    def table(self, name: object, members: int) -> _Table:
        with self._lock:
            return self._tables.setdefault(name, _Table(members))


class Wire:
    """A transport of one rank."""

    def __init__(self, net: Net, rank: int, replica: int) -> None:
        self._net, self._rank, self._replica = net, rank, replica

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Arrived:
        self._net.box(self._replica, transfer.tag).values.put(value.clone())
        return Arrived()

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> _Letter:
        return _Letter(self._net.box(self._replica, transfer.tag), buffer)

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        if len(ranks) > 1:
            given = self._net.table(ranks, len(ranks)).meet(ranks.index(self._rank), [value.clone()])
            value.copy_(sum(one for (one,) in given[1:]) + given[0][0])

    def barrier(self) -> None:
        """Nobody leaves."""


class Member:
    """An exchange of one rank with the same rank of the other replicas."""

    def __init__(self, net: Net, rank: int, replica: int, replicas: int) -> None:
        self.replica, self.replicas = replica, replicas
        self.calls = 0
        self._table = net.table(("all-to-all", rank), replicas)

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        self.calls += 1
        parts = self._table.meet(self.replica, rows.split_with_sizes(list(sent)))
        taken = [given[self.replica] for given in parts]
        assert [len(one) for one in taken] == list(received)
        return torch.cat(taken)


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Runs each in a thread of its own; raises what the first of them raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()
