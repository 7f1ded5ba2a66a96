from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from pipetrace.action import parse
from pipetrace.execute.check import difference
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.result import CheckReport
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.stages.base import Stage
from pipetrace.execute.workloads.transformer import TransformerWorkload
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from tests.execute.in_process import run_rank

CONFIG = RunConfig("transformer", hidden=8, heads=2, sequence=4, batch=1)

# Two stages on one rank, each with the microbatches' weight gradients in an order of its own.
ACTIONS = "0F0 0F1 1F0 1F1 1I1 1I0 1W0 1W1 0I1 0B0 0W1"
SCHEDULE = Schedule.from_actions("t", Placement(1, ((0, 0),)), 2, [[parse(a) for a in ACTIONS.split()]])

Stages = dict[tuple[int, int], Stage]


def checked(spoil: Callable[[AutogradStage, AutogradStage], None] = lambda _one, _two: None) -> CheckReport:
    workload = TransformerWorkload(SCHEDULE, CONFIG)
    stages, _, _ = run_rank(SCHEDULE, workload, steps=2)
    first, last = stages[0, 0], stages[0, 1]
    assert isinstance(first, AutogradStage)
    assert isinstance(last, AutogradStage)
    spoil(first, last)
    ticks: list[int] = []
    check = workload.check(compile_rank(SCHEDULE, 0), stages, lambda: ticks.append(1))
    assert ticks
    return CheckReport((check,), "gradients", 1e-4, "")


def gradient(stage: AutogradStage, index: int) -> torch.Tensor:
    grad = stage.named_parameters()[index][1].grad
    assert grad is not None
    return grad


def test_a_pipeline_agrees_with_a_single_process_to_the_last_bit() -> None:
    report = checked()
    assert report.bit_equal, report.text
    assert report.passed
    # Embedding and position, twelve a block, norm and head.
    assert report.ranks[0].compared == 3 - 1 + 12 + 12 + 4


def scaled(first: AutogradStage, _last: AutogradStage) -> None:
    gradient(first, 0).mul_(1.01)


def missing(_first: AutogradStage, last: AutogradStage) -> None:
    last.named_parameters()[3][1].grad = None


def not_a_number(_first: AutogradStage, last: AutogradStage) -> None:
    gradient(last, 2)[0] = math.nan


def another_loss(_first: AutogradStage, last: AutogradStage) -> None:
    last.losses[1] = last.losses[1] + 1


def a_loss_less(_first: AutogradStage, last: AutogradStage) -> None:
    del last.losses[1]


@pytest.mark.parametrize("spoil", [scaled, missing, not_a_number, another_loss, a_loss_less])
def test_what_is_wrong_fails(spoil: Callable[[AutogradStage, AutogradStage], None]) -> None:
    report = checked(spoil)
    assert not report.passed
    assert not report.bit_equal
    assert "FAILED" in report.text


def test_a_last_bit_passes_but_is_not_called_equal() -> None:
    def nudge(first: AutogradStage, _last: AutogradStage) -> None:
        grad = gradient(first, 2)
        grad[0] = torch.nextafter(grad[0], torch.tensor(math.inf))

    report = checked(nudge)
    assert report.passed
    assert not report.bit_equal


def test_differences_are_absolute_and_relative_to_the_largest_entry() -> None:
    assert difference(torch.tensor([1.0, 5.0]), torch.tensor([1.0, 4.0])) == (1.0, 0.25)
    assert difference(None, None) == (0.0, 0.0)
    assert difference(torch.ones(1), None) == (math.inf, math.inf)
    assert difference(torch.ones(1), torch.zeros(1)) == (1.0, math.inf)
    assert difference(torch.tensor([math.nan]), torch.zeros(1)) == (math.inf, math.inf)
