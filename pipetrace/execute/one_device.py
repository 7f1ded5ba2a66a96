"""One step of all ranks in one process, on one device: a compute and a communication stream for every rank.

The process walks through the ranks' lists in an order in which everything an action waits for comes before it, and
gives each action to its rank's compute stream. What travels is copied by the sender's communication stream into the
receiver's buffer, between two events: the copy waits for the output, the consumer for the copy. So the streams keep
the list order and the events the hand-overs, and the process itself waits for nothing before the step's end.

Ranks that share a device share what computes on it: synthetic kernels run side by side, real ones take from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.compute import run_half
from pipetrace.execute.devices.base import Device, Event, Stream
from pipetrace.execute.program import Op, Program, Transfer
from pipetrace.execute.stages.base import Stage
from pipetrace.links import Links

Label: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Marks what is called inside it in the trace."""


class OneDeviceStep:
    """Runs all ranks' programs, step after step.

    Args:
        links: Of the schedule.
        programs: Of all its ranks.
        stages: Of all ranks, by (pipe, stage).
        device: Where everything lies and runs.
        buffer: Makes room on the device for the value that a receive brings.
        line: Where the process says what it does.
        label: Marks it in the trace.
        finish: What is left to do at a step's end, on rank 0's compute stream.
    """

    def __init__(
        self,
        links: Links,
        programs: Sequence[Program],
        stages: Mapping[tuple[int, int], Stage],
        device: Device,
        buffer: Callable[[Action], torch.Tensor],
        line: Line,
        label: Label,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        self._stages, self._device, self._line, self._label, self._finish = stages, device, line, label, finish
        self.compute = [device.stream() for _ in programs]
        self.communication = [device.stream() for _ in programs]
        self._buffers = {t.receive.code: buffer(t.receive) for program in programs for t in program.receives}
        rows = {op.row: (program.rank, op) for program in programs for op in program.ops}
        self._ops = [rows[row] for row in links.order.tolist()]
        # A value lives to the end of the step: a stream may still read what another has long let go.
        self._values: dict[int, torch.Tensor] = {}
        self._sent: list[torch.Tensor] = []
        self._arrived: dict[int, Event] = {}

    def named_streams(self) -> list[dict[str, Any]]:
        """Every stream as the profiler calls it, with the rank that it belongs to and what it runs; plain values."""
        streams: list[Stream] = [*self.compute, *self.communication]
        names = self._device.names(streams)
        half = len(self.compute)
        return [
            {"stream": name, "rank": number % half, "runs": "compute" if number < half else "communication"}
            for number, name in enumerate(names)
        ]

    def run(self) -> None:
        """One step; returns when the device has run all of it.

        Raises:
            RuntimeError: Work on the device broke.
        """
        for stage in self._stages.values():
            stage.begin_step()
        for rank, op in self._ops:
            self._give(rank, op)
        for stream in self.compute[1:]:
            self.compute[0].wait(stream.record())
        self.compute[0].run(self._finish)
        self._line.at(Phase.DEVICE)
        self._device.synchronize()
        self._values.clear()
        self._sent.clear()
        self._arrived.clear()
        self._line.step_done()

    def _give(self, rank: int, op: Op) -> None:
        """Gives an action to its rank's streams, and what it sends."""
        stream = self.compute[rank]
        self._line.at(Phase.COMPUTING, *(half.action.code for half in op.halves))
        for transfer in op.receives:
            stream.wait(self._arrived[transfer.receive.code])
        stream.run(lambda: self._compute(op))
        sends = [half.sends for half in op.halves if half.sends is not None]
        if not sends:
            return
        done = stream.record()
        out = self.communication[rank]
        out.wait(done)
        for transfer in sends:
            out.run(lambda transfer=transfer: self._copy(transfer))  # type: ignore[misc]
            self._arrived[transfer.receive.code] = out.record()

    def _compute(self, op: Op) -> None:
        with self._label(f"PP:{op.text}"):
            # Both halves of a pair start with what both take, as their ideal does.
            taken = [self._values.pop(half.takes, None) for half in op.halves]
            for half, value in zip(op.halves, taken, strict=True):
                output = run_half(self._stages, half, value)
                if value is not None:
                    self._sent.append(value)
                if output is not None:
                    self._values[half.gives] = output

    def _copy(self, transfer: Transfer) -> None:
        code = transfer.receive.code
        value, buffer = self._values[code], self._buffers[code]
        with self._label(f"POST:{transfer.send}"):
            buffer.copy_(value, non_blocking=True)
        self._sent.append(value)
        self._values[code] = buffer
