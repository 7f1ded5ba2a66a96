"""Workloads that break, named by the tests as "module:function" and loaded in the ranks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from pipetrace.action import Action, Kind, parse_action
from pipetrace.execute.board import Board, Line, Phase
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import Program
from pipetrace.execute.recorder import Recorder
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.stages.moe_stage import MoeStage
from pipetrace.execute.workloads.base import Host, Stages
from pipetrace.execute.workloads.moe import MoeWorkload
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from pipetrace.execute.workloads.transformer import TransformerWorkload
from pipetrace.schedule import Schedule

WHERE = (1, 2)
"""(stage, microbatch) whose forward breaks, in the second step: there is something recorded by then."""

CALM = "PIPETRACE_TESTS_CALM"
"""The variable that names the file which a rank writes once all others wait for it and nothing moves any more: with its
process id where it then stops."""


def await_others(*awaited: tuple[int, Phase, str]) -> None:
    """Returns when each rank is in its phase of its action, for good: it needs the rank that calls."""
    board, wanted = _board(), [(rank, phase, parse_action(text).code) for rank, phase, text in awaited]
    while not all((int(c[0]), int(c[1])) == (phase, code) for rank, phase, code in wanted for c in [board[rank]]):
        time.sleep(0.005)


def _board() -> Any:
    """All lines of the board of which a rank, up the stack, writes one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "run_steps":
        frame = frame.f_back
    assert frame is not None
    line = frame.f_locals["line"]
    assert isinstance(line, Line)
    whole = line._cells.base
    assert whole is not None
    return whole.reshape(-1, Board(1).cells.shape[1])


def _calm(text: str = "") -> None:
    await_others((0, Phase.WAITING, "0RECV_B1"), (2, Phase.WAITING, "2RECV_F2"))
    path = Path(os.environ[CALM])
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


class _BreakingStage(SleepStage):
    fault: Callable[[], None] | None = None
    steps = 0

    def begin_step(self) -> None:
        super().begin_step()
        self.steps += 1

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        if self.fault is not None and self.steps == 2 and microbatch == WHERE[1]:
            self.fault()
        return super().forward(microbatch, value)


class _BreakingWorkload(SleepWorkload):
    def __init__(self, schedule: Schedule, config: RunConfig, fault: Callable[[], None]) -> None:
        super().__init__(schedule, config)
        self._fault = fault

    def stage(self, pipe: int, stage: int) -> SleepStage:
        schedule, config = self._schedule, self._config
        made = _BreakingStage(
            stage, schedule.stages, pipe, schedule.microbatches, config.costs.of(stage), config.message_bytes
        )
        if stage == WHERE[0]:
            made.fault = self._fault
        return made


def _raise() -> None:
    print("about to break")
    raise ValueError("no such luck")


def _hang() -> None:
    _calm()
    time.sleep(1000)


def _hang_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _calm()
    time.sleep(1000)


def _stop() -> None:
    _calm(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def _be_killed() -> None:
    _calm()
    os.kill(os.getpid(), signal.SIGKILL)


def raising(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _raise)


def killed(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _be_killed)


def unnamed_signal(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6))


def terminated(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGTERM))


def stopped(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _stop)


def exiting(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os._exit(3))


def hanging(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _hang)


def deaf(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _hang_deaf)


def failing_to_start(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    raise MemoryError("too large")


class _ForgetfulStage(AutogradStage):
    """Loses one microbatch's weight gradient."""

    def backward_weight(self, microbatch: int) -> None:
        if microbatch != WHERE[1]:
            super().backward_weight(microbatch)


class _ForgetfulWorkload(TransformerWorkload):
    made = 0

    def stage(self, pipe: int, stage: int) -> AutogradStage:
        whole = super().stage(pipe, stage)
        # The rank's own stage is the first to be made; those of the reference come later and are right.
        self.made += 1
        if stage == WHERE[0] and self.made == 1:
            return _ForgetfulStage(whole.body)
        return whole


def forgetful(schedule: Schedule, config: RunConfig, host: Host) -> TransformerWorkload:
    return _ForgetfulWorkload(schedule, config)


class _BreakingMoe(MoeWorkload):
    steps = 0

    def stage(self, pipe: int, stage: int) -> MoeStage:
        made = super().stage(pipe, stage)
        if stage == WHERE[0] and self._exchange.replica == 1:
            begin, forward, workload = made.begin_step, made.forward, self

            def counting() -> None:
                workload.steps += 1
                begin()

            def killing(microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
                if workload.steps == 2 and microbatch == WHERE[1]:
                    await_others((1, Phase.EXCHANGING, "1F2"))
                    os.kill(os.getpid(), signal.SIGKILL)
                return forward(microbatch, value)

            made.begin_step, made.forward = counting, killing  # type: ignore[method-assign]
        return made


def killed_in_a_replica(schedule: Schedule, config: RunConfig, host: Host) -> MoeWorkload:
    return _BreakingMoe(schedule, config, host)


class _Disagreeing(SleepWorkload):
    """Whose last rank makes more room than is needed."""

    def __init__(self, schedule: Schedule, config: RunConfig, host: Host) -> None:
        super().__init__(schedule, config, host)
        self.held: set[int] = set()

    def stage(self, pipe: int, stage: int) -> SleepStage:
        self.held.add(stage)
        return super().stage(pipe, stage)

    def buffer(self, receive: Action) -> torch.Tensor:
        room = super().buffer(receive)
        return torch.cat([room, room]) if receive.kind is Kind.RECV_F and 0 not in self.held else room


def disagreeing(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _Disagreeing(schedule, config, host)


def _await_the_order_to_end() -> None:
    """And stays on for longer than one that does not obey is given."""
    told, handler = threading.Event(), signal.getsignal(signal.SIGTERM)

    def tell(number: int, frame: FrameType | None) -> None:
        told.set()
        assert callable(handler)
        handler(number, frame)

    signal.signal(signal.SIGTERM, tell)
    assert told.wait(100)
    signal.signal(signal.SIGTERM, handler)
    time.sleep(1.0)


class _Unequal(SleepWorkload):
    """Whose stage 1 breaks in the check, while the rank of stage 0 writes its trace until it is told to end."""

    def __init__(self, schedule: Schedule, config: RunConfig, host: Host) -> None:
        super().__init__(schedule, config, host)
        finish = Recorder.finish

        def held_up(recorder: Recorder, folder: Path, scratch: Path) -> None:
            if self._first:
                _await_the_order_to_end()
            finish(recorder, folder, scratch)

        Recorder.finish = held_up  # type: ignore[method-assign, assignment]

    def stage(self, pipe: int, stage: int) -> SleepStage:
        self._first = stage == 0
        return super().stage(pipe, stage)

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:
        if not self._first:
            raise ValueError("no such luck")
        return super().check(program, stages, tick)


def unequal(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _Unequal(schedule, config, host)
