from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import pipetrace
from pipetrace.action import parse
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.inject import RankFaults
from pipetrace.execute.prefetch import PrefetchStep
from pipetrace.execute.program import compile_rank
from pipetrace.execute.step import Seat
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from tests.execute.in_process import Loopback, run_rank

MS = 1_000_000
INSTANT = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16)


def test_a_pair_is_one_label_and_sends_what_either_half_gives() -> None:
    lists = ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1", "2F0 2B0 2F1 2B1"]
    schedule = Schedule.from_actions("t", Placement.loop(3), 2, [[parse(a) for a in text.split()] for text in lists])
    _, labels, transport = run_rank(schedule, SleepWorkload(schedule, INSTANT), rank=1)
    texts = [text for _, text in labels.seen]
    at = texts.index("PP:(1F1;1B0)OVERLAP_F_B")
    assert texts[at - 2 : at] == ["WAIT:1RECV_F1", "WAIT:1RECV_B0"]
    assert texts[at + 1 : at + 3] == ["POST:1SEND_F1", "POST:1SEND_B0"]
    assert [str(transfer.send) for transfer, _ in transport.sent] == ["1SEND_F0", "1SEND_F1", "1SEND_B0", "1SEND_B1"]


def test_stages_on_one_rank_hand_over_without_a_transfer() -> None:
    placement = Placement(1, ((0, 0, 0),))
    actions = ["0F0", "1F0", "2F0", "2I0", "1I0", "0I0", "0W0", "1W0", "2W0"]
    schedule = Schedule.from_actions("t", placement, 1, [[parse(a) for a in actions]])
    stages, labels, transport = run_rank(schedule, SleepWorkload(schedule, INSTANT), steps=2)
    assert [text for _, text in labels.seen] == 2 * [f"PP:{action}" for action in actions]
    assert not transport.sent
    assert not transport.received
    middle = stages[0, 1]
    assert isinstance(middle, SleepStage)
    assert middle.received == 2
    assert not middle.wrong_messages()


def test_a_fault_slows_compute_inside_its_label_and_pauses_outside() -> None:
    schedule = pipetrace.build("gpipe", 1, 2)
    workload = SleepWorkload(schedule, RunConfig(costs=Costs(StageCosts(MS, MS, MS))))
    took: dict[str, list[int]] = {}
    ended: list[int] = []

    @contextmanager
    def label(text: str) -> Iterator[None]:
        began = time.perf_counter_ns()
        took.setdefault("between", []).extend(began - end for end in ended[-1:])
        yield
        ended.append(time.perf_counter_ns())
        took.setdefault(text, []).append(ended[-1] - began)

    faults = RankFaults(stretch=3.0, gap=2 * MS)
    line = Board(1).line(0)
    stages = {(0, 0): workload.stage(0, 0)}
    PrefetchStep(Seat(compile_rank(schedule, 0), stages, Loopback(), workload.buffer, line, label, faults=faults)).run()
    assert min(took.pop("between")) >= 2 * MS
    assert min(took["PP:0F0"]) >= 3 * MS
    assert min(took["PP:0B1"]) >= 6 * MS


def test_a_stage_that_gives_nothing_where_something_is_needed_is_an_error() -> None:
    class Silent(SleepStage):
        def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:  # noqa: ARG002
            return None

    class Workload(SleepWorkload):
        def stage(self, pipe: int, stage: int) -> SleepStage:
            return Silent(stage, 2, pipe, 1, StageCosts(0, 0, 0), 16)

    schedule = pipetrace.build("gpipe", 2, 1)
    with pytest.raises(RuntimeError, match="0F0 gave no value"):
        run_rank(schedule, Workload(schedule, INSTANT))
