"""Receives that threads wait for, so that a rank need not.

A receive over gloo tells nothing until it is waited for, and one that was waited for a little cannot be waited for
again. So where a rank wants to know what has arrived, or when, a thread waits in its place: one for each stage and
direction that the rank receives for. In these a later microbatch does not overtake an earlier one, as all that make
them take theirs in the order of the list; one that did would be noticed together with the one it overtook.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue

import torch

from pipetrace.action import Kind
from pipetrace.execute.p2p import Pending, Transport
from pipetrace.execute.program import Transfer
from pipetrace.execute.sleeping import sleep_until


class Arrival:
    """A receive under way.

    Args:
        transfer: Which.
        pending: What the thread waits for.
        delay: ns after which what has come may be seen.
    """

    __slots__ = ("_come", "_delay", "_error", "_pending", "due", "transfer")

    def __init__(self, transfer: Transfer, pending: Pending, delay: int) -> None:
        self.transfer = transfer
        self.due = 0
        self._pending, self._delay = pending, delay
        self._come = threading.Event()
        self._error: Exception | None = None

    def watch(self) -> None:
        """Waits, in the thread."""
        try:
            self._pending.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the thread that runs the rank
            self._error = error
        self.due = time.perf_counter_ns() + self._delay
        self._come.set()

    def wait(self) -> None:
        """Returns when the value is there.

        Raises:
            RuntimeError: The transfer broke.
        """
        self._come.wait()
        if self._error is not None:
            raise self._error
        sleep_until(self.due)


class WatchedTransport:
    """A transport whose receives threads wait for.

    Args:
        transport: How values travel.
        delays: ns by which what comes from a rank is late, by sender.
        only_delayed: Whether receives from other senders are waited for as ever.
        tell: Is called, in a thread, with each receive that has come.
    """

    def __init__(
        self,
        transport: Transport,
        delays: Mapping[int, int],
        *,
        only_delayed: bool,
        tell: Callable[[Arrival], None] = lambda _arrival: None,
    ) -> None:
        self._transport = transport
        self._delays, self._only_delayed = delays, only_delayed
        self._tell = tell
        self._queues: dict[tuple[int, int, Kind], SimpleQueue[Arrival]] = {}

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`."""
        return self._transport.post_send(value, transfer)

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:
        """See `Transport`; receives of one stage and direction in the order of their use."""
        pending = self._transport.post_receive(buffer, transfer)
        if self._only_delayed and transfer.sender not in self._delays:
            return pending
        arrival = Arrival(transfer, pending, self._delays.get(transfer.sender, 0))
        receive = transfer.receive
        self._queue(receive.pipe, receive.stage, receive.kind).put(arrival)
        return arrival

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """See `Transport`."""
        self._transport.add_up(value, ranks)

    def barrier(self) -> None:
        """See `Transport`."""
        self._transport.barrier()

    def _queue(self, *stream: *tuple[int, int, Kind]) -> SimpleQueue[Arrival]:
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = SimpleQueue()
            name = f"{stream[2].name} {stream[1]}"
            threading.Thread(target=self._watch, args=(queue,), name=name, daemon=True).start()
        return queue

    def _watch(self, queue: SimpleQueue[Arrival]) -> None:
        while True:
            arrival = queue.get()
            arrival.watch()
            self._tell(arrival)
