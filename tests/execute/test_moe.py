"""The workload, its stages and its reference, in this process: one replica, or several as threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import pipetrace
from pipetrace.action import Action, Kind, Part, parse_action
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.result import CheckReport
from pipetrace.execute.stages.base import Stage
from pipetrace.execute.stages.moe_stage import FORWARD, MoeStage
from pipetrace.execute.workloads.base import Host
from pipetrace.execute.workloads.moe import MoeWorkload
from pipetrace.execute.workloads.moe_reference import orders_of
from pipetrace.schedule import Schedule
from tests.execute.in_process import run_rank
from tests.execute.replicas import Member, Net

CONFIG = RunConfig("moe", hidden=8, heads=2, sequence=4, batch=2, layers=2, experts=4, expert_hidden=6, ep=1, top_k=2)
SCHEDULE = pipetrace.build("gpipe", 1, 3)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def checked(config: RunConfig, spoil: Callable[[MoeStage], None] = lambda _stage: None) -> CheckReport:
    workload = MoeWorkload(SCHEDULE, config, Host())
    stages, _, _ = run_rank(SCHEDULE, workload, steps=2)
    stage = stages[0, 0]
    assert isinstance(stage, MoeStage)
    spoil(stage)
    ticks: list[int] = []
    check = workload.check(compile_rank(SCHEDULE, 0), stages, lambda: ticks.append(1))
    assert len(ticks) == 3
    return CheckReport((check,), "gradients", 1e-4, "")


def test_a_stage_agrees_with_the_reference_to_the_last_bit() -> None:
    report = checked(CONFIG)
    assert report.bit_equal, report.text
    attention, expert, ends = 9, 4, 2 + 4
    assert report.ranks[0].compared == 2 * (attention + 4 * expert) + ends


def test_dropped_tokens_agree_too() -> None:
    report = checked(RunConfig("moe", hidden=8, heads=2, sequence=4, batch=2, experts=4, expert_hidden=6, capacity=0.5))
    assert report.bit_equal, report.text


def of_an_expert(stage: MoeStage) -> None:
    next(stage.layers[1].experts[2].parameters()).grad = None


def of_attention(stage: MoeStage) -> None:
    gradient = next(stage.layers[0].attention.parameters()).grad
    assert gradient is not None
    gradient.mul_(1.01)


def of_the_inlet(stage: MoeStage) -> None:
    assert stage.inlet is not None
    gradient = next(stage.inlet.parameters()).grad
    assert gradient is not None
    gradient[0, 0] = math.nan


def of_the_head(stage: MoeStage) -> None:
    assert stage.head is not None
    next(stage.head.parameters()).grad = None


def a_loss_less(stage: MoeStage) -> None:
    del stage.losses[1]


@pytest.mark.parametrize("spoil", [of_an_expert, of_attention, of_the_inlet, of_the_head, a_loss_less])
def test_what_is_wrong_fails(spoil: Callable[[MoeStage], None]) -> None:
    assert not checked(CONFIG, spoil).passed


def test_replicas_hold_a_share_of_the_experts_and_tokens_of_their_own() -> None:
    net = Net()
    workloads = [MoeWorkload(SCHEDULE, CONFIG, Host(Member(net, 0, replica, 2))) for replica in range(2)]
    stages = [workload.stage(0, 0) for workload in workloads]
    whole = workloads[0].modules(0)
    for stage, share in zip(stages, (slice(0, 2), slice(2, 4)), strict=True):
        for layer, of in zip(stage.layers, whole.layers, strict=True):
            assert len(layer.experts) == 2
            for ours, theirs in zip(layer.experts, of.experts[share], strict=True):
                assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert not torch.equal(workloads[0].tokens(0, 0), workloads[0].tokens(1, 0))
    assert torch.equal(workloads[0].tokens(1, 0), workloads[1].tokens(1, 0))
    assert stages[0].gradients()[0].shape == stages[1].gradients()[0].shape
    assert len(stages[0].expert_gradients()) == 2 * 2 * 4


@pytest.mark.parametrize("capacity", [0.0, 1.0])
def test_two_replicas_leave_what_one_process_leaves(capacity: float) -> None:
    config = RunConfig(
        "moe", hidden=8, heads=2, sequence=4, batch=2, layers=2, experts=4, expert_hidden=6, ep=2, capacity=capacity
    )
    net = Net()
    members = [Member(net, 0, replica, 2) for replica in range(2)]
    workloads = [MoeWorkload(SCHEDULE, config, Host(member)) for member in members]
    # Not by the threads, which share their random numbers.
    made = [workload.stage(0, 0) for workload in workloads]

    def run(replica: int) -> tuple[MoeStage, list[int]]:
        torch.set_num_threads(1)
        stage = made[replica]
        calls: list[int] = []
        stage.begin_step()
        for microbatch in range(3):
            for kind in (Kind.F, Kind.I, Kind.W):
                before = members[replica].calls
                if kind is Kind.F:
                    stage.forward(microbatch, None)
                elif kind is Kind.I:
                    stage.backward_input(microbatch, None)
                else:
                    stage.backward_weight(microbatch)
                calls.append(members[replica].calls - before)
        return stage, calls

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    asks = 0 if capacity else 2  # for the sizes of what comes, once a layer
    for _, calls in outcomes:
        assert calls == [4 + asks, 4, 0] * 3  # nothing of W waits for another replica
    # What the step's end does: sums over the replicas.
    for ours, theirs in zip(*(stage.gradients() for stage, _ in outcomes), strict=True):
        theirs.add_(ours)
        ours.copy_(theirs)
    for replica, (stage, _) in enumerate(outcomes):
        stages: dict[tuple[int, int], Stage] = {(0, 0): stage}
        check = workloads[replica].check(compile_rank(SCHEDULE, 0), stages, lambda: None)
        assert check.bit_equal, check
        assert check.rank == replica


def test_parts_can_be_run_in_any_order_that_keeps_their_own() -> None:
    """Two microbatches of one stage, their parts interleaved, W of experts and attention apart."""
    workload = MoeWorkload(SCHEDULE, CONFIG, Host())
    stage, plain = workload.stage(0, 0), workload.stage(0, 0)
    for made in (stage, plain):
        made.begin_step()
    for microbatch in range(2):
        plain.forward(microbatch, None)
        plain.backward(microbatch, None)
    for layer, part in itertools.product(range(2), FORWARD):
        for microbatch in range(2):
            stage.run_part(Kind.F, layer, part, microbatch, None)
    for layer, part in itertools.product((1, 0), reversed(FORWARD)):
        for microbatch in range(2):
            stage.run_part(Kind.I, layer, part, microbatch, None)
    for part, layer, microbatch in itertools.product((Part.ATTN, Part.MLP), range(2), range(2)):
        stage.run_part(Kind.W, layer, part, microbatch, None)
    for ours, theirs in zip(
        [*stage.gradients(), *stage.expert_gradients()], [*plain.gradients(), *plain.expert_gradients()], strict=True
    ):
        assert torch.equal(ours, theirs)
    assert stage.losses.keys() == plain.losses.keys() == {0, 1}


def test_the_order_of_weight_gradients_is_the_schedules() -> None:
    def actions(schedule: Schedule) -> list[Action]:
        programs = [compile_rank(schedule, rank) for rank in range(schedule.ranks)]
        return [half.action for program in programs for op in program.ops for half in op.halves]

    orders = orders_of(actions(pipetrace.build("1f1b", 2, 3)), 2)
    assert set(orders) == {0}
    assert orders[0][1, 0, Part.ATTN] == orders[0][0, 1, Part.MLP] == (0, 1, 2)
    assert len(orders[0]) == 2 * 2 * 2
    parts = [parse_action(text) for text in ["0W1@1.mlp", "0W0@1.mlp", "0W0@1.attn", "0W1@1.attn", "0B0@0.combine"]]
    assert orders_of(parts, 2)[0] == {(0, 1, Part.MLP): (1, 0), (0, 1, Part.ATTN): (0, 1)}
    both = orders_of(actions(pipetrace.build("chimera", 2, 4)), 1)
    assert {order for of in both.values() for order in of.values()} == {(0, 1), (2, 3)}
