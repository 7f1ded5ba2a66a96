"""One step of all ranks in one process, on one device: a compute and a communication stream for every rank.

The process walks through the ranks' lists in an order in which everything an action waits for comes before it, and
gives each action to its rank's compute stream. What travels is copied by the sender's communication stream into the
receiver's buffer, between two events: the copy waits for the output, the consumer for the copy. So the streams keep
the list order and the events the hand-overs, and the process itself waits for nothing before the step's end.

Where ranks may leave their lists (*dataflow*) the process looks on: it gives a rank its next action, by the rule of
`ready`, when the one before has ended, so that what was ready first runs first.

Ranks that share a device share what computes on it: synthetic kernels run side by side, real ones take from each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.compute import run_half
from pipetrace.execute.devices.base import Device, Event, Stream
from pipetrace.execute.program import Op, Program, Transfer
from pipetrace.execute.stages.base import Stage
from pipetrace.links import Links
from pipetrace.ready import NOTHING, ReadyList

_LOOK_S = 20e-6  # between two looks at what has ended

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
        lists: For each rank, what makes that from which it chooses, at a step's beginning; None where all keep their
            lists.
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
        lists: Sequence[Callable[[], ReadyList]] | None = None,
    ) -> None:
        self._lists = lists
        self._programs = programs
        self._stages, self._device, self._line, self._label, self._finish = stages, device, line, label, finish
        self.compute = [device.stream() for _ in programs]
        self.communication = [device.stream() for _ in programs]
        self._buffers = {t.receive.code: buffer(t.receive) for program in programs for t in program.receives}
        rows = {op.row: (program.rank, op) for program in programs for op in program.ops}
        self._ops = [rows[row] for row in links.order.tolist()]
        self._op_of = {row: op for row, (_, op) in rows.items()}
        self._after: dict[int, list[int]] = {row: [] for row in rows}
        self._consumer: dict[int, int] = {}
        for row, op in self._op_of.items():
            for producer in op.after:
                self._after[producer].append(row)
            for transfer in op.receives:
                self._consumer[transfer.receive.code] = row
        # Rows in the order in which each rank ran them in the last step.
        self._ran: list[list[int]] = [[op.row for op in program.ops] for program in programs]
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
        if self._lists is None:
            for rank, op in self._ops:
                self._give(rank, op)
        else:
            self._look_on([begin() for begin in self._lists])
        for stream in self.compute[1:]:
            self.compute[0].wait(stream.record())
        self.compute[0].run(self._finish)
        self._line.at(Phase.DEVICE)
        self._device.synchronize()
        self._values.clear()
        self._sent.clear()
        self._arrived.clear()
        self._line.step_done()

    @property
    def ran(self) -> list[Program]:
        """The ranks' programs in the order in which the last step ran them."""
        return [
            replace(program, ops=tuple(self._op_of[row] for row in rows))
            for program, rows in zip(self._programs, self._ran, strict=True)
        ]

    def _look_on(self, lists: Sequence[ReadyList]) -> None:
        """Gives each rank what is ready, as it becomes free."""
        lacks = {row: len(op.receives) + len(op.after) for row, op in self._op_of.items()}
        rank_of = {row: rank for rank, of in enumerate(lists) for row in of.rows}
        running: dict[int, tuple[int, Event]] = {}
        self._ran = [[] for _ in lists]

        def has(row: int) -> None:
            lacks[row] -= 1
            if lacks[row] <= 0:
                lists[rank_of[row]].add(row)

        for row in [row for row, count in lacks.items() if not count]:
            has(row)
        under_way: dict[int, Event] = {}
        while any(of.rows for of in lists):
            moved = False
            for rank, (row, ended) in list(running.items()):
                if ended.done():
                    moved = True
                    del running[rank]
                    lists[rank].end(row)
                    for consumer in self._after[row]:
                        has(consumer)
            for code, arrived in list(under_way.items()):
                if arrived.done():
                    moved = True
                    del under_way[code]
                    has(self._consumer[code])
            for rank, of in enumerate(lists):
                row = of.choose() if rank not in running and of.rows else NOTHING
                if row != NOTHING:
                    moved = True
                    of.start(row)
                    self._ran[rank].append(row)
                    self._give(rank, self._op_of[row])
                    running[rank] = row, self.compute[rank].record()
                    sends = [half.sends.receive.code for half in self._op_of[row].halves if half.sends is not None]
                    under_way |= {code: self._arrived[code] for code in sends}
            if not moved:
                # Also when work broke: events are reached all the same, and the step's end raises it.
                time.sleep(_LOOK_S)

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
