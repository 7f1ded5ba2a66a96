"""Workloads that break, named by the tests as "module:function" and loaded in the ranks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import torch

from pipetrace.action import Action, Kind
from pipetrace.execute.config import RunConfig
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.stages.moe_stage import MoeStage
from pipetrace.execute.workloads.base import Host
from pipetrace.execute.workloads.moe import MoeWorkload
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from pipetrace.execute.workloads.transformer import TransformerWorkload
from pipetrace.schedule import Schedule

WHERE = (1, 2)
"""(stage, microbatch) whose forward breaks, in the second step: there is something recorded by then."""


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
    time.sleep(1000)


def _hang_deaf() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    time.sleep(1000)


def raising(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, _raise)


def killed(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGKILL))


def unnamed_signal(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGRTMIN + 6))


def terminated(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGTERM))


def stopped(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    return _BreakingWorkload(schedule, config, lambda: os.kill(os.getpid(), signal.SIGSTOP))


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
                    time.sleep(0.3)  # for the other replica to wait for this one
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
