"""Real layers in parts, two replicas of two ranks: in every order they leave what one process leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import pipetrace
from pipetrace.costs import Costs
from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.devices.threads import ThreadDevice
from pipetrace.execute.expert_parallel import InProcess
from pipetrace.execute.one_device import OneDeviceStep
from pipetrace.execute.program import compile_rank
from pipetrace.execute.reduce import GradientReduction, LocalReduction, reductions
from pipetrace.execute.result import RankCheck
from pipetrace.execute.step import Seat
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.base import Host
from pipetrace.execute.workloads.moe import MoeWorkload
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedule import Schedule
from pipetrace.waiting import Wait
from tests.execute.in_process import Labels
from tests.execute.replicas import Member, Net, Wire, at_once

RANKS, REPLICAS = 2, 2
CONFIG = RunConfig("moe", hidden=8, heads=2, sequence=4, batch=2, experts=4, expert_hidden=6, ep=REPLICAS)


@pytest.fixture
def devices() -> Iterator[list[ThreadDevice]]:
    made = [ThreadDevice() for _ in range(RANKS * REPLICAS)]
    yield made
    for device in made:
        device.close()


EVERY_ORDER = [(name, order) for name in ("dualpipev", "moe-1f1b") for order in MoeOrder]


def in_parts(name: str, order: MoeOrder) -> Schedule:
    return expand_moe(pipetrace.build(name, RANKS, 4), Overlap(order, 1), Costs())


def apart(schedule: Schedule, config: RunConfig, devices: list[ThreadDevice] | None = None) -> list[RankCheck]:
    """Every rank by itself: on threads for its lanes, or on a device's streams."""
    net, steps, checks = Net(), [], []
    for rank in range(RANKS * REPLICAS):
        replica, of_replica = divmod(rank, RANKS)
        program, line, labels = compile_rank(schedule, of_replica), Board(RANKS).line(of_replica), Labels()
        workload = MoeWorkload(schedule, config, Host(Member(net, of_replica, replica, REPLICAS)))
        stages = {held: workload.stage(*held) for held in schedule.placement.held_by(of_replica)}
        transport = Wire(net, rank, replica)
        work = reductions(schedule.placement, of_replica, replica, REPLICAS)
        reduction = GradientReduction(work, stages, transport, line, labels)
        seat = Seat(program, stages, transport, workload.buffer, line, labels, reduction.run)
        step = step_of(schedule, config, seat, line.beside(), devices[rank] if devices else None)
        steps.append(step)
        checks.append((workload, step, stages))
    for _ in range(2):
        at_once([step.run for step in steps])
    return [workload.check(step.ran, stages, lambda: None) for workload, step, stages in checks]


@pytest.mark.parametrize(("name", "order"), EVERY_ORDER)
def test_threads_for_lanes(name: str, order: MoeOrder) -> None:
    for check in apart(in_parts(name, order), CONFIG):
        assert check.bit_equal, check
        assert check.compared


@pytest.mark.parametrize(
    ("name", "order"),
    [("dualpipev", MoeOrder.DUALPIPE), ("dualpipev", MoeOrder.ALIGNED), ("moe-1f1b", MoeOrder.MEGATRON)],
)
def test_streams_for_lanes(name: str, order: MoeOrder, devices: list[ThreadDevice]) -> None:
    for check in apart(in_parts(name, order), CONFIG, devices):
        assert check.bit_equal, check
        assert check.compared


@pytest.mark.parametrize("streams", [True, False])
def test_receives_posted_where_they_are_used(streams: bool, devices: list[ThreadDevice]) -> None:
    config = replace(CONFIG, wait=Wait.INLINE, capacity=1.0)
    for check in apart(in_parts("dualpipev", MoeOrder.DUALPIPE), config, devices if streams else None):
        assert check.bit_equal, check


@pytest.mark.parametrize(("name", "order"), EVERY_ORDER)
def test_all_replicas_on_one_device(name: str, order: MoeOrder, devices: list[ThreadDevice]) -> None:
    schedule, device = in_parts(name, order), devices[0]
    workloads = [
        MoeWorkload(schedule, CONFIG, Host(InProcess(replica, REPLICAS), device.tensors, device.sleep, device.use))
        for replica in range(REPLICAS)
    ]
    held = [part for rank in range(RANKS) for part in schedule.placement.held_by(rank)]
    stages = [{part: workload.stage(*part) for part in held} for workload in workloads]
    line, labels = Board(1).line(0), Labels()
    reduction = LocalReduction(schedule.placement, stages, line, labels)
    step = OneDeviceStep(schedule, stages, device, workloads[0].buffer, line, labels, reduction.run)
    for _ in range(2):
        step.run()
    for workload, of in zip(workloads, stages, strict=True):
        for program in step.ran:
            mine = {part: of[part] for part in schedule.placement.held_by(program.rank)}
            check = workload.check(program, mine, lambda: None)
            assert check.bit_equal, check
            assert check.compared
    assert {named["rank"] for named in step.named_streams()} == set(range(RANKS * REPLICAS))
    assert len({named["stream"] for named in step.named_streams()}) == 3 * RANKS * REPLICAS
