"""One step on one rank: what all ways of waiting share.

Labels go to the profiler, one for each thing a rank does, so that nothing ever waits inside a compute label:
`POST:` around posting, `WAIT:` around waiting, `PP:` around compute alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from pipetrace.action import ALL_TO_ALL_PARTS, Action
from pipetrace.errors import RunError
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.compute import run_half
from pipetrace.execute.inject import NO_FAULTS, RankFaults
from pipetrace.execute.p2p import Pending, Transport
from pipetrace.execute.program import Op, Program, Transfer
from pipetrace.execute.shapes import Shape, shape_of, shape_text, shapes_of
from pipetrace.execute.sleeping import sleep_until
from pipetrace.execute.stages.base import Stage

Label: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Marks what happens inside it in the trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Receive:
    """A receive of a step, with its texts: these are made once, not between a rank's actions.

    Args:
        transfer: What travels.
        code: Of its receive.
        post, wait: Labels.
        buffer: Room for the value.
    """

    transfer: Transfer
    code: int
    post: str
    wait: str
    buffer: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """An op, likewise.

    Args:
        op: What is run.
        label: Of its compute.
        codes: Of its actions.
        receives: What must have arrived before.
        posts: Labels of what its halves send; empty where one sends nothing.
    """

    op: Op
    label: str
    codes: tuple[int, ...]
    receives: tuple[Receive, ...]
    posts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """What a rank's steps are made of, however it waits.

    Args:
        program: What to run.
        stages: What runs it, by (pipe, stage).
        transport: How values travel.
        buffer: Makes room for the value that a receive brings.
        line: Where the rank says what it does.
        label: Marks it in the trace.
        finish: What is left to do at a step's end.
        faults: What is done to compute on purpose.
    """

    program: Program
    stages: Mapping[tuple[int, int], Stage]
    transport: Transport
    buffer: Callable[[Action], torch.Tensor]
    line: Line
    label: Label
    finish: Callable[[], None] = lambda: None
    faults: RankFaults = NO_FAULTS


class Step(ABC):
    """Runs a rank's program, step after step.

    Receive buffers are made once: a step ends when all its values were used and all its sends were taken, so the next
    may receive into them again.
    """

    def __init__(self, of: Seat) -> None:
        self._program = program = of.program
        self._stages = of.stages
        self._transport = of.transport
        self._line = of.line
        self._label = of.label
        self._finish = of.finish
        self._faults = of.faults
        buffer = of.buffer

        def receive(transfer: Transfer) -> Receive:
            of = transfer.receive
            return Receive(transfer, of.code, f"POST:{of}", f"WAIT:{of}", buffer(of))

        self._works = [
            Work(
                op,
                f"PP:{op.text}",
                tuple(half.action.code for half in op.halves),
                tuple(map(receive, op.receives)),
                tuple(f"POST:{half.sends.send}" if half.sends is not None else "" for half in op.halves),
            )
            for op in program.ops
        ]
        self._shapes = shapes_of(program, buffer)
        # Works and tensors must live to the end of the step: gloo drops the connection with the first one let go.
        self._arriving: dict[int, Pending] = {}
        self._sending: list[tuple[Transfer, Pending, torch.Tensor]] = []
        self._values: dict[int, torch.Tensor] = {}
        self._ran: list[Op] = []

    def run(self) -> None:
        """One step.

        Raises:
            RuntimeError: A transfer broke, usually because the rank at its other end has ended.
            RunError: A stage gave what its receiver has no room for.
        """
        for stage in self._stages.values():
            stage.begin_step()
        self._ran.clear()
        self._play()
        for transfer, pending, _ in self._sending:
            self._line.at(Phase.FLUSHING, transfer.send.code)
            with self._label(f"WAIT:{transfer.send}"):
                pending.wait()
        self._arriving.clear()
        self._sending.clear()
        self._values.clear()
        self._finish()
        self._line.step_done()

    @property
    def shapes(self) -> Mapping[int, Shape]:
        """What the rank believes of all that it sends and receives; see `pipetrace.execute.shapes`."""
        return self._shapes

    @property
    def ran(self) -> Program:
        """The program in the order in which the last step ran it: the order in which gradients were added up."""
        return replace(self._program, ops=tuple(self._ran))

    @abstractmethod
    def _play(self) -> None:
        """Runs all works, and what they wait for."""

    def _post(self, receive: Receive, line: Line | None = None) -> None:
        """Posts a receive."""
        (line or self._line).at(Phase.POSTING, receive.code)
        with self._label(receive.post):
            self._arriving[receive.code] = self._transport.post_receive(receive.buffer, receive.transfer)

    def _wait(self, receive: Receive, line: Line | None = None) -> None:
        """Waits for a receive that was posted."""
        (line or self._line).at(Phase.WAITING, receive.code)
        with self._label(receive.wait):
            self._arriving[receive.code].wait()
        self._values[receive.code] = receive.buffer

    def _perform(self, work: Work, line: Line | None = None) -> None:
        """Computes, once everything that it takes is there, and posts what it sends."""
        line, label, values, faults = line or self._line, self._label, self._values, self._faults
        halves = work.op.halves
        if faults is not NO_FAULTS and halves[0].action.part in ALL_TO_ALL_PARTS:
            faults = NO_FAULTS  # which are of compute
        line.at(Phase.COMPUTING, *work.codes)
        if faults.gap:
            sleep_until(time.perf_counter_ns() + faults.gap)
        with label(work.label):
            began = time.perf_counter_ns()
            outputs = [run_half(self._stages, half, values.pop(half.takes, None)) for half in halves]
            if faults.stretch > 1:
                sleep_until(began + round((time.perf_counter_ns() - began) * faults.stretch))
        for half, output, post in zip(halves, outputs, work.posts, strict=True):
            if output is None:
                continue
            if half.sends is None:
                values[half.gives] = output
                continue
            if shape_of(output) != self._shapes[half.gives]:
                raise RunError(
                    f"{half.action} gave {shape_text(shape_of(output))}, but rank {half.sends.receiver} makes room for "
                    f"{shape_text(self._shapes[half.gives])}",
                    "what a stage gives must be alike for all microbatches",
                )
            line.at(Phase.POSTING, half.sends.send.code)
            with label(post):
                self._sending.append((half.sends, self._transport.post_send(output, half.sends), output))
        self._ran.append(work.op)
