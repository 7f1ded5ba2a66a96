"""A whole pipeline in one thread: ranks whose schedule needs no other rank, or whose labels are to be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import Transfer, compile_rank
from pipetrace.execute.stages.base import Stage
from pipetrace.execute.step import Seat
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.base import Workload
from pipetrace.schedule import Schedule


class Arrived:
    """A transfer that is done."""

    def wait(self) -> None:
        """At once."""


class Loopback:
    """A transport that keeps what is sent, and receives what a test put there."""

    def __init__(self) -> None:
        self.sent: list[tuple[Transfer, torch.Tensor]] = []
        self.received: list[Transfer] = []

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Arrived:
        """Keeps it."""
        self.sent.append((transfer, value))
        return Arrived()

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Arrived:  # noqa: ARG002
        """Leaves the buffer as it is."""
        self.received.append(transfer)
        return Arrived()

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """Leaves the value as it is."""

    def barrier(self) -> None:
        """Nobody to wait for."""


class Labels:
    """What would be in the trace: (depth, text) in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []
        self.depth = 0

    @contextmanager
    def __call__(self, text: str) -> Iterator[None]:
        self.seen.append((self.depth, text))
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


def run_rank(
    schedule: Schedule, workload: Workload, rank: int = 0, steps: int = 1, config: RunConfig | None = None
) -> tuple[dict[tuple[int, int], Stage], Labels, Loopback]:
    """Runs one rank's steps here."""
    stages = {held: workload.stage(*held) for held in schedule.placement.held_by(rank)}
    labels, transport = Labels(), Loopback()
    line = Board(schedule.ranks).line(rank)
    seat = Seat(compile_rank(schedule, rank), stages, transport, workload.buffer, line, labels)
    step = step_of(schedule, config or RunConfig(), seat)
    for _ in range(steps):
        step.run()
    return stages, labels, transport
