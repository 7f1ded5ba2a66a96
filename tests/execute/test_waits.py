from __future__ import annotations

import pytest

import pipetrace
from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.dataflow import DataflowStep
from pipetrace.execute.inline import InlineStep
from pipetrace.execute.prefetch import PrefetchStep
from pipetrace.execute.program import compile_rank
from pipetrace.execute.step import Seat
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.sleep import SleepWorkload
from pipetrace.waiting import Wait
from tests.execute.in_process import Labels, Loopback


@pytest.mark.parametrize(
    ("wait", "of"), [(Wait.INLINE, InlineStep), (Wait.PREFETCH, PrefetchStep), (Wait.DATAFLOW, DataflowStep)]
)
def test_each_way_of_waiting_has_its_step(wait: Wait, of: type) -> None:
    schedule, config = pipetrace.build("1f1b", 2, 2), RunConfig(wait=wait)
    workload = SleepWorkload(schedule, config)
    seat = Seat(compile_rank(schedule, 0), {}, Loopback(), workload.buffer, Board(2).line(0), Labels())
    step = step_of(schedule, config, seat)
    assert type(step) is of
