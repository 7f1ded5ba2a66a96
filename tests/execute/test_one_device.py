"""All ranks in one process, over a device whose streams are threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from pipetrace.action import Action
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.board import Board
from pipetrace.execute.config import RunConfig
from pipetrace.execute.devices.threads import ThreadDevice
from pipetrace.execute.one_device import OneDeviceStep
from pipetrace.execute.program import Program, compile_rank
from pipetrace.execute.stages.base import Stage
from pipetrace.execute.workloads.base import Workload
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from pipetrace.execute.workloads.transformer import TransformerWorkload
from pipetrace.ready import ReadyList, ready_lists
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.waiting import Wait, Waiting

QUICK = Costs(StageCosts(F=200_000, I=200_000, W=200_000))


class Spans:
    """(thread, text) of every label, in the order in which they ended; thread-safe as appends are."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []

    def __call__(self, text: str) -> Spans:
        self.seen.append((threading.get_native_id(), text))
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def device() -> Iterator[ThreadDevice]:
    made = ThreadDevice()
    yield made
    made.close()


def step_of(
    schedule: Schedule,
    workload: Workload,
    device: ThreadDevice,
    spans: Spans,
    lists: Sequence[Callable[[], ReadyList]] | None = None,
) -> tuple[OneDeviceStep, list[Program], dict[tuple[int, int], Stage]]:
    programs = [compile_rank(schedule, rank) for rank in range(schedule.ranks)]
    held = [part for rank in range(schedule.ranks) for part in schedule.placement.held_by(rank)]
    stages = {part: workload.stage(*part) for part in held}
    step = OneDeviceStep(schedule, [stages], device, workload.buffer, Board(1).line(0), spans, lists=lists)
    return step, programs, stages


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "zbv", "chimera", "dualpipev", "moe-1f1b", "interleaved"])
def test_every_message_is_the_right_one_and_every_list_is_kept(name: str, device: ThreadDevice) -> None:
    schedule = build(name, 4, 8)
    workload = SleepWorkload(schedule, RunConfig(costs=QUICK, message_bytes=64))
    spans = Spans()
    step, programs, stages = step_of(schedule, workload, device, spans)
    for _ in range(2):
        spans.seen.clear()
        step.run()
    threads = [named["stream"] for named in step.named_streams() if named["runs"] == "compute"]
    for program, thread in zip(programs, threads, strict=False):
        mine = [text for seen, text in spans.seen if str(seen) == thread]
        assert mine == [f"PP:{op.text}" for op in program.ops]
        check = workload.check(
            program, {key: stages[key] for key in schedule.placement.held_by(program.rank)}, lambda: None
        )
        assert check.bit_equal, check.worst
    posts = [text for _, text in spans.seen if text.startswith("POST:")]
    assert sorted(posts) == sorted(f"POST:{t.send}" for program in programs for t in program.sends)


@pytest.mark.parametrize("name", ["zb-h1", "zbv", "dualpipev"])
def test_gradients_equal_a_single_process(name: str, device: ThreadDevice) -> None:
    torch.set_num_threads(1)
    schedule = build(name, 2, 4)
    config = RunConfig(workload="transformer", hidden=16, heads=2, sequence=8, batch=1)
    workload = TransformerWorkload(schedule, config)
    step, programs, stages = step_of(schedule, workload, device, Spans())
    step.run()
    step.run()
    for program in programs:
        mine = {key: stages[key] for key in schedule.placement.held_by(program.rank)}
        check = workload.check(program, mine, lambda: None)
        assert check.bit_equal, check.worst
        assert check.compared > 0


def test_out_of_order_gradients_are_right_and_the_cap_is_kept(device: ThreadDevice) -> None:
    """A slow first stage makes others run what is ready instead of what comes next."""
    torch.set_num_threads(1)
    schedule = build("zbv", 2, 6)
    workload = TransformerWorkload(schedule, RunConfig(workload="transformer", hidden=16, heads=2, sequence=8, batch=1))
    lists = ready_lists(schedule, Waiting(Wait.DATAFLOW))
    step, programs, stages = step_of(schedule, workload, device, Spans(), lists)
    for _ in range(3):
        step.run()
    for listed, ran in zip(programs, step.ran, strict=True):
        assert sorted(op.row for op in ran.ops) == [op.row for op in listed.ops]
        mine = {key: stages[key] for key in schedule.placement.held_by(ran.rank)}
        check = workload.check(ran, mine, lambda: None)
        assert check.bit_equal, check.worst


class Late(SleepWorkload):
    """Whose second forward of stage 0 is not over before stage 1 has made a weight gradient."""

    def stage(self, pipe: int, stage: int) -> SleepStage:
        made = super().stage(pipe, stage)
        if stage == 0:
            self.overtaken = threading.Event()
            forward = made.forward

            def late(microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
                if microbatch == 1:
                    assert self.overtaken.wait(60)
                return forward(microbatch, value)

            made.forward = late  # type: ignore[method-assign]
        else:

            def early(microbatch: int) -> None:
                self.overtaken.set()

            made.backward_weight = early  # type: ignore[method-assign]
        return made


def test_a_late_input_is_overtaken(device: ThreadDevice) -> None:
    schedule = build("zb-h1", 2, 6)
    workload = Late(schedule, RunConfig(costs=QUICK, message_bytes=64))
    step, programs, _ = step_of(schedule, workload, device, Spans(), ready_lists(schedule, Waiting(Wait.DATAFLOW)))
    step.run()
    listed, ran = ([op.text for op in of[1].ops] for of in (programs, step.ran))
    assert listed.index("1F1") < listed.index("1W0")
    assert ran.index("1W0") < ran.index("1F1")


def test_what_breaks_on_the_device_ends_the_step(device: ThreadDevice) -> None:
    schedule = build("1f1b", 2, 4)

    class Broken(SleepWorkload):
        def buffer(self, receive: Action) -> torch.Tensor:  # noqa: ARG002
            return torch.zeros(3, dtype=torch.uint8)

    step, _, _ = step_of(schedule, Broken(schedule, RunConfig(costs=QUICK, message_bytes=64)), device, Spans())
    with pytest.raises(RuntimeError, match="size"):
        step.run()
