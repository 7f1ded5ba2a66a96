from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest
import torch

import pipetrace
from pipetrace.action import Action, parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.inject import parse_injections
from pipetrace.execute.program import Transfer, compile_rank
from pipetrace.execute.step import Seat, Step
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.sleep import SleepWorkload
from pipetrace.schedule import Schedule
from pipetrace.waiting import Wait
from tests.execute.in_process import Labels, Loopback

INSTANT = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16, wait=Wait.DATAFLOW)
MS = 1_000_000


@dataclass
class Gate:
    """A receive that comes when its gate opens."""

    opened: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def wait(self) -> None:
        assert self.opened.wait(60)
        if self.error is not None:
            raise self.error


class Gated(Loopback):
    """Opens gates by what the rank has sent and waits for: (when this label is seen) → these receives come."""

    def __init__(self, script: dict[str, list[str]]) -> None:
        super().__init__()
        self.gates: dict[int, Gate] = {}
        self.script = script

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Gate:  # type: ignore[override]  # noqa: ARG002
        return self.gate(transfer.receive)

    def gate(self, receive: Action) -> Gate:
        return self.gates.setdefault(receive.code, Gate())


class Scripted(Labels):
    """Labels that tell the transport what the rank does."""

    def __init__(self, transport: Gated) -> None:
        super().__init__()
        self.transport = transport

    def __call__(self, text: str):  # type: ignore[no-untyped-def]
        for receive in self.transport.script.pop(text, []):
            self.transport.gate(parse_action(receive)).opened.set()
        return super().__call__(text)


def step_on(
    schedule: Schedule, rank: int, script: dict[str, list[str]], config: RunConfig = INSTANT
) -> tuple[Step, Scripted]:
    workload = SleepWorkload(schedule, config)
    transport = Gated(script)
    labels = Scripted(transport)
    stages = {held: workload.stage(*held) for held in schedule.placement.held_by(rank)}
    program = compile_rank(schedule, rank)
    line = Board(schedule.ranks).line(rank)
    return step_of(schedule, config, Seat(program, stages, transport, workload.buffer, line, labels)), labels


def compute(labels: Labels) -> list[str]:
    return [text for _, text in labels.seen if text.startswith(("PP:", "WAIT:")) and "SEND" not in text]


ZB = pipetrace.build("zb-h1", 2, 3)
"""Its last rank: 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2."""


def test_it_turns_to_what_is_ready_and_says_what_it_waits_for() -> None:
    step, labels = step_on(
        ZB, 1, {"WAIT:1RECV_F0": ["1RECV_F0"], "WAIT:1RECV_F1": ["1RECV_F1"], "WAIT:1RECV_F2": ["1RECV_F2"]}
    )
    step.run()
    assert [str(op.text) for op in compile_rank(ZB, 1).ops] == [
        "1F0",
        "1I0",
        "1F1",
        "1I1",
        "1W0",
        "1F2",
        "1I2",
        "1W1",
        "1W2",
    ]
    # 1W0 and 1W1 need nothing from elsewhere: they fill the time in which a forward is awaited.
    assert compute(labels) == [
        "WAIT:1RECV_F0", "PP:1F0", "PP:1I0", "PP:1W0",
        "WAIT:1RECV_F1", "PP:1F1", "PP:1I1", "PP:1W1",
        "WAIT:1RECV_F2", "PP:1F2", "PP:1I2", "PP:1W2",
    ]  # fmt: skip
    assert [op.text for op in step.ran.ops] == [text[3:] for text in compute(labels) if text.startswith("PP:")]


def test_a_receive_that_came_meanwhile_has_a_wait_of_no_length_before_its_use() -> None:
    step, labels = step_on(ZB, 1, {"WAIT:1RECV_F0": ["1RECV_F0", "1RECV_F1", "1RECV_F2"]})
    step.run()
    seen = compute(labels)
    for microbatch in range(3):
        at = seen.index(f"PP:1F{microbatch}")
        assert seen[at - 1] == f"WAIT:1RECV_F{microbatch}"
        assert seen.count(f"WAIT:1RECV_F{microbatch}") == 1


def test_with_reordering_off_it_is_the_list() -> None:
    config = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16, wait=Wait.DATAFLOW, reorder=False)
    step, labels = step_on(ZB, 1, {f"WAIT:1RECV_F{i}": [f"1RECV_F{i}"] for i in range(3)}, config)
    for _ in range(2):
        labels.transport.gates.clear()
        labels.transport.script = {f"WAIT:1RECV_F{i}": [f"1RECV_F{i}"] for i in range(3)}
        step.run()
    mine = [text[3:] for text in compute(labels) if text.startswith("PP:")]
    assert mine == 2 * [op.text for op in compile_rank(ZB, 1).ops]


def test_a_forward_does_not_overtake_where_the_list_holds_no_more() -> None:
    schedule = pipetrace.build("1f1b", 3, 3)
    # Rank 1 holds two activations at most: all three forwards are there, but the third waits for a backward.
    script = {"WAIT:1RECV_F0": ["1RECV_F0", "1RECV_F1", "1RECV_F2"], "WAIT:1RECV_B0": ["1RECV_B0"]}
    script["PP:1F2"] = ["1RECV_B1", "1RECV_B2"]
    step, labels = step_on(schedule, 1, script)
    step.run()
    assert [t[3:] for t in compute(labels) if t.startswith("PP:")] == ["1F0", "1F1", "1B0", "1F2", "1B1", "1B2"]
    more = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16, wait=Wait.DATAFLOW, caps=(3, 3, 3))
    script = {"WAIT:1RECV_F0": ["1RECV_F0", "1RECV_F1", "1RECV_F2"], "PP:1F2": [f"1RECV_B{i}" for i in range(3)]}
    step, labels = step_on(schedule, 1, script, more)
    step.run()
    assert [t[3:] for t in compute(labels) if t.startswith("PP:")][:3] == ["1F0", "1F1", "1F2"]


def test_what_a_slow_link_holds_back_is_not_seen_before() -> None:
    config = RunConfig(
        costs=Costs(StageCosts(0, 0, 0)),
        message_bytes=16,
        wait=Wait.DATAFLOW,
        inject=parse_injections(["link0-1:+40ms"]),
    )
    step, labels = step_on(ZB, 1, {"POST:1RECV_F0": ["1RECV_F0", "1RECV_F1", "1RECV_F2"]}, config)
    began = time.perf_counter_ns()
    step.run()
    assert time.perf_counter_ns() - began >= 40 * MS
    assert compute(labels)[:2] == ["WAIT:1RECV_F0", "PP:1F0"]


def test_a_broken_transfer_ends_the_step() -> None:
    step, labels = step_on(ZB, 1, {"WAIT:1RECV_F0": ["1RECV_F0"], "WAIT:1RECV_F1": ["1RECV_F1"]})
    labels.transport.gate(parse_action("1RECV_F1")).error = RuntimeError("connection closed")
    with pytest.raises(RuntimeError, match="connection closed"):
        step.run()
