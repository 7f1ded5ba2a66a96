from __future__ import annotations

import time

import pytest
import torch

import pipetrace
from pipetrace.action import Kind, parse, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.errors import RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload, sleep_until
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from tests.execute.in_process import run_rank

MS = 1_000_000


@pytest.mark.parametrize("duration", [0, 50_000, 2 * MS])
def test_it_never_returns_early(duration: int) -> None:
    end = time.perf_counter_ns() + duration
    sleep_until(end)
    assert time.perf_counter_ns() >= end


def test_each_action_takes_its_cost() -> None:
    stage = SleepStage(1, 3, 0, 1, StageCosts(F=2 * MS, I=3 * MS, W=1 * MS, B=5 * MS), 8)
    value = torch.zeros(8, dtype=torch.uint8)

    def took(act: object) -> int:
        before = time.perf_counter_ns()
        assert callable(act)
        act()
        return time.perf_counter_ns() - before

    assert took(lambda: stage.forward(0, value)) >= 2 * MS
    assert took(lambda: stage.backward_input(0, value)) >= 3 * MS
    assert took(lambda: stage.backward_weight(0)) >= 1 * MS
    assert took(lambda: stage.backward(0, value)) >= 5 * MS


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


def test_a_cost_for_pairs_is_refused_where_there_are_pairs() -> None:
    config = RunConfig(costs=Costs(pair=PairCost(MS, MS, MS)))
    SleepWorkload(pipetrace.build("gpipe", 2, 1), config)
    lists = ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1"]
    schedule = Schedule.from_actions("t", Placement.loop(2), 2, [[parse(a) for a in text.split()] for text in lists])
    with pytest.raises(RunError, match="overlapped pair"):
        SleepWorkload(schedule, config)
