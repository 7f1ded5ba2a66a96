from __future__ import annotations

import threading
import time

import pytest
import torch

import pipetrace
from pipetrace.execute.arrivals import Arrival, WatchedTransport
from pipetrace.execute.p2p import Pending
from pipetrace.execute.program import Transfer, compile_rank
from tests.execute.in_process import Loopback

MS = 1_000_000
RECEIVES = compile_rank(pipetrace.build("1f1b", 3, 2), 1).receives
VALUE = torch.zeros(1)


class Held:
    """A transfer that comes when told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.gate = threading.Event()
        self.error = error

    def wait(self) -> None:
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error


class HeldTransport(Loopback):
    """Whose receives come when told."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:  # type: ignore[override]
        super().post_receive(buffer, transfer)
        self.held.append(Held())
        return self.held[-1]


def test_only_what_comes_over_a_slow_link_is_late() -> None:
    inner = HeldTransport()
    slow = WatchedTransport(inner, {0: 30 * MS}, only_delayed=True)
    forward = next(r for r in RECEIVES if r.sender == 0)
    backward = next(r for r in RECEIVES if r.sender == 2)
    late, other = slow.post_receive(VALUE, forward), slow.post_receive(VALUE, backward)
    assert other is inner.held[1]
    came = time.perf_counter_ns()
    inner.held[0].gate.set()
    late.wait()
    assert time.perf_counter_ns() - came >= 30 * MS


def test_what_has_come_is_told_and_streams_do_not_wait_for_each_other() -> None:
    inner = HeldTransport()
    told: list[Transfer] = []
    some = threading.Event()

    def tell(arrival: Arrival) -> None:
        told.append(arrival.transfer)
        some.set()

    watched = WatchedTransport(inner, {}, only_delayed=False, tell=tell)
    for receive in RECEIVES:
        watched.post_receive(VALUE, receive)
    backward = next(i for i, r in enumerate(RECEIVES) if r.sender == 2)
    inner.held[backward].gate.set()
    assert some.wait(60)
    assert told == [RECEIVES[backward]]


def test_a_broken_transfer_raises_where_it_is_waited_for() -> None:
    arrival = Arrival(RECEIVES[0], Held(RuntimeError("connection closed")), 0)
    threading.Thread(target=arrival.watch, daemon=True).start()
    pending = arrival._pending
    assert isinstance(pending, Held)
    pending.gate.set()
    with pytest.raises(RuntimeError, match="connection closed"):
        arrival.wait()


def test_the_rest_is_the_transport_s() -> None:
    inner = Loopback()
    watched = WatchedTransport(inner, {}, only_delayed=False)
    send = compile_rank(pipetrace.build("1f1b", 3, 2), 1).sends[0]
    watched.post_send(VALUE, send)
    watched.add_up(VALUE, (1,))
    watched.barrier()
    assert [transfer for transfer, _ in inner.sent] == [send]
