from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.shapes import check_shapes, shapes_of
from pipetrace.execute.workloads.sleep import SleepStage, SleepWorkload
from tests.execute import faulty
from tests.execute.in_process import run_rank
from tests.execute.processes import own_descendants
from tests.execute.test_supervisor import start

INSTANT = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16, steps=1, warmup=0)
PROGRAMS = [compile_rank(pipetrace.build("1f1b", 3, 2), rank) for rank in range(3)]


def room(receive: Action) -> torch.Tensor:
    """Forwards bring the stage's number of floats, backwards of the stage behind."""
    return torch.empty(receive.stage + (receive.kind is Kind.RECV_B))


def test_a_rank_tells_of_all_that_it_sends_and_receives() -> None:
    shapes = shapes_of(PROGRAMS[1], room)
    assert {str(Action.from_code(code)): tuple(shape) for code, (shape, _) in shapes.items()} == {
        "2RECV_F0": (2,), "2RECV_F1": (2,), "0RECV_B0": (1,), "0RECV_B1": (1,),
        "1RECV_F0": (1,), "1RECV_F1": (1,), "1RECV_B0": (2,), "1RECV_B1": (2,),
    }  # fmt: skip


def test_ranks_that_believe_otherwise_are_named() -> None:
    everyone = [shapes_of(program, room) for program in PROGRAMS]
    for program in PROGRAMS:
        check_shapes(program, everyone)
    everyone[0] = shapes_of(PROGRAMS[0], lambda receive: room(receive).double())
    check_shapes(PROGRAMS[2], everyone)
    with pytest.raises(RunError) as caught:
        check_shapes(PROGRAMS[1], everyone)
    assert caught.value.message == ("rank 0 sends 0SEND_F0 as (1,) float64, but rank 1 makes room for (1,) float32")
    assert caught.value.hint


@pytest.mark.parametrize("given", [torch.zeros(8, dtype=torch.uint8), torch.zeros(16, dtype=torch.int8)])
def test_what_does_not_fit_is_not_sent(given: torch.Tensor) -> None:
    class Changed(SleepWorkload):
        def stage(self, pipe: int, stage: int) -> SleepStage:
            made = super().stage(pipe, stage)
            made._outputs[1] = given
            return made

    schedule = pipetrace.build("gpipe", 2, 2)
    with pytest.raises(RunError, match=r"0F1 gave \(.*int8, but rank 1 makes room for \(16,\) uint8"):
        run_rank(schedule, Changed(schedule, INSTANT))


def test_a_run_whose_ranks_disagree_ends_before_its_first_step(tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    with pytest.raises(RunError, match=r"rank 1 .* rank 0 sends 0SEND_F0 as \(16,\) uint8, but rank 1 makes room for"):
        start(schedule, INSTANT, tmp_path, f"{faulty.__name__}:disagreeing", 60.0)
    assert not own_descendants()
    # Without the preflight the rank that sends finds out nothing, and gloo fills the room in part.
    start(schedule, replace(INSTANT, preflight=False), tmp_path, f"{faulty.__name__}:disagreeing", 60.0)
