from __future__ import annotations

import time

import pytest
import torch

import pipetrace
from pipetrace.action import Action, Kind, parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.sleeping import sleep_until
from pipetrace.execute.workloads.base import Host
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from pipetrace.jitter import Jitter
from tests.execute.in_process import run_rank

MS = 1_000_000


@pytest.mark.parametrize("duration", [0, 50_000, 2 * MS])
def test_it_never_returns_early(duration: int) -> None:
    end = time.perf_counter_ns() + duration
    sleep_until(end)
    assert time.perf_counter_ns() >= end


def test_a_wrong_message_fails_the_check() -> None:
    config = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=8)
    schedule = pipetrace.build("gpipe", 3, 2)
    workload = SleepWorkload(schedule, config)
    # The loopback leaves the buffers as they are: none holds the message that it is for.
    stages, _, _ = run_rank(schedule, workload, rank=1)
    stage = stages[0, 1]
    assert isinstance(stage, SleepStage)
    assert stage.wrong_messages() == [parse_action(text) for text in ("1RECV_F0", "1RECV_F1", "1RECV_B0", "1RECV_B1")]
    check = workload.check(compile_rank(schedule, 1), stages, lambda: None)
    assert not check.bit_equal
    assert check.max_abs_error == 4
    assert check.worst == "wrong message for 1RECV_F0"


def test_messages_have_the_size_asked_for() -> None:
    schedule = pipetrace.build("gpipe", 2, 1)
    workload = SleepWorkload(schedule, RunConfig(message_bytes=100))
    assert workload.buffer(parse_action("1RECV_F0")).nbytes == 100
    output = workload.stage(0, 0).forward(0, None)
    assert output is not None
    assert output.nbytes == 100
    assert Kind(int(output[0]) & 31) is Kind.RECV_F


def test_what_each_kind_takes_is_its_cost() -> None:
    costs = StageCosts(F=2 * MS, I=3 * MS, W=1 * MS, B=5 * MS, recompute=1 * MS)
    slept: list[int] = []
    stage = SleepStage(1, 3, 0, 1, costs, 8, Host(sleep=slept.append))
    value = torch.zeros(8, dtype=torch.uint8)
    stage.forward(0, value)
    stage.backward_input(0, value)
    stage.backward_weight(0)
    stage.backward(0, value)
    assert slept == [2 * MS, 4 * MS, 1 * MS, 6 * MS]


def test_with_jitter_it_takes_what_the_simulator_takes() -> None:
    costs = Costs(StageCosts(3 * MS, 2 * MS, MS), jitter=Jitter(0.5, 3))
    schedule = pipetrace.build("zb-h1", 2, 4)
    workload = SleepWorkload(schedule, RunConfig(costs=costs))
    stages = [workload.stage(0, stage) for stage in range(2)]
    for code, ns in zip(schedule.code.tolist(), costs.durations(schedule).tolist(), strict=True):
        action = Action.from_code(code)
        assert action.microbatch is not None
        assert stages[action.stage]._takes[action.kind, action.microbatch] == ns
