"""One step on one rank, waiting by *prefetch*: all receives posted ahead, list order kept.

Labels go to the profiler, one for each thing a rank does, so that nothing ever waits inside a compute label:
`POST:` around posting, `WAIT:` around waiting, `PP:` around compute alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.compute import run_half
from pipetrace.execute.inject import NO_FAULTS, RankFaults
from pipetrace.execute.p2p import Pending, Transport
from pipetrace.execute.program import Program, Transfer
from pipetrace.execute.sleeping import sleep_until
from pipetrace.execute.stages.base import Stage

Label: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Marks what happens inside it in the trace."""


class PrefetchStep:
    """Runs a rank's program, step after step.

    Receive buffers are made once: a step ends when all its values were used and all its sends were taken, so the next
    may receive into them again.

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

    def __init__(
        self,
        program: Program,
        stages: Mapping[tuple[int, int], Stage],
        transport: Transport,
        buffer: Callable[[Action], torch.Tensor],
        line: Line,
        label: Label,
        finish: Callable[[], None] = lambda: None,
        faults: RankFaults = NO_FAULTS,
    ) -> None:
        self._faults = faults
        self._stages = stages
        self._transport = transport
        self._line = line
        self._label = label
        self._finish = finish
        self._receives = [
            (transfer, transfer.receive.code, f"POST:{transfer.receive}", buffer(transfer.receive))
            for transfer in program.receives
        ]
        # Texts are made here, not between a rank's actions.
        self._ops = [
            (
                op,
                f"PP:{op.text}",
                [half.action.code for half in op.halves],
                [(transfer.receive.code, f"WAIT:{transfer.receive}") for transfer in op.receives],
                [f"POST:{half.sends.send}" if half.sends is not None else "" for half in op.halves],
            )
            for op in program.ops
        ]

    def run(self) -> None:
        """One step.

        Raises:
            RuntimeError: A transfer broke, usually because the rank at its other end has ended.
        """
        line, label, transport, faults = self._line, self._label, self._transport, self._faults
        for stage in self._stages.values():
            stage.begin_step()
        # Works and tensors must live to the end of the step: gloo drops the connection with the first one let go.
        arriving: dict[int, tuple[Pending, torch.Tensor]] = {}
        sending: list[tuple[Transfer, Pending, torch.Tensor]] = []
        values: dict[int, torch.Tensor | None] = {}
        for transfer, code, text, buffer in self._receives:
            line.at(Phase.POSTING, code)
            with label(text):
                arriving[code] = transport.post_receive(buffer, transfer), buffer
        for op, text, codes, waits, posts in self._ops:
            for code, wait in waits:
                pending, values[code] = arriving[code]
                line.at(Phase.WAITING, code)
                with label(wait):
                    pending.wait()
            line.at(Phase.COMPUTING, *codes)
            if faults.gap:
                sleep_until(time.perf_counter_ns() + faults.gap)
            with label(text):
                began = time.perf_counter_ns()
                outputs = [run_half(self._stages, half, values.pop(half.takes, None)) for half in op.halves]
                if faults.stretch > 1:
                    sleep_until(began + round((time.perf_counter_ns() - began) * faults.stretch))
            for half, output, post in zip(op.halves, outputs, posts, strict=True):
                if output is None:
                    continue
                if half.sends is None:
                    values[half.gives] = output
                    continue
                line.at(Phase.POSTING, half.sends.send.code)
                with label(post):
                    sending.append((half.sends, transport.post_send(output, half.sends), output))
        for transfer, pending, _ in sending:
            line.at(Phase.FLUSHING, transfer.send.code)
            with label(f"WAIT:{transfer.send}"):
                pending.wait()
        self._finish()
        line.step_done()
