from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pipetrace
from pipetrace.action import parse_action
from pipetrace.errors import RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import compile_rank
from pipetrace.execute.runner import run
from pipetrace.execute.workloads.own import OwnModel, OwnWorkload
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from tests.execute import own_models
from tests.execute.in_process import run_rank

CPU = torch.device("cpu")

# All stages on one rank: what is checked here is the model, not the transport.
SPLIT = "0F0 0F1 1F0 1F1 2F0 2F1 2I0 2I1 2W1 2W0 1I0 1W0 1B1 0I0 0W0 0B1"
WHOLE = "0F0 0F1 1F0 1F1 2F0 2F1 2B0 2B1 1B0 1B1 0B0 0B1"


def schedule(actions: str) -> Schedule:
    return Schedule.from_actions(
        "t", Placement(1, ((0, 0, 0),)), 2, [[parse_action(action) for action in actions.split()]]
    )


def config(name: str, seed: int = 0) -> RunConfig:
    return RunConfig("own", stages=f"{own_models.__name__}:{name}", seed=seed)


@pytest.mark.parametrize(
    ("name", "actions", "compared"),
    [("views", SPLIT, 1 + 3 * 2 + 2), ("made_alone", SPLIT, 9), ("floats", SPLIT, 6), ("undivided", WHOLE, 9)],
)
def test_a_model_agrees_with_a_single_process_to_the_last_bit(name: str, actions: str, compared: int) -> None:
    torch.set_num_threads(1)
    workload = OwnWorkload(schedule(actions), config(name), CPU)
    stages, _, _ = run_rank(schedule(actions), workload)
    check = workload.check(compile_rank(schedule(actions), 0), stages, lambda: None)
    assert check.bit_equal, check
    assert check.compared == compared
    # A wrong gradient is seen.
    stages[0, 1].gradients()[0].mul_(1.01)
    assert not workload.check(compile_rank(schedule(actions), 0), stages, lambda: None).bit_equal


def test_i_of_the_first_stage_is_more_than_nothing() -> None:
    """Its body's input gradient is made there, so that W makes only weights' gradients."""
    workload = OwnWorkload(schedule(SPLIT), config("views"), CPU)
    stage = workload.stage(0, 0)
    assert isinstance(stage.inlet, torch.nn.Embedding)
    stage.begin_step()
    stage.forward(0, None)
    assert stage.backward_input(0, torch.ones(2, 4, 6)) is None
    assert stage.gradients()[0].count_nonzero() == 0
    stage.backward_weight(0)
    assert stage.gradients()[0].count_nonzero()


def test_weights_follow_from_the_seed_on_whatever_rank() -> None:
    for name in ("views", "made_alone"):
        one, two, other = (OwnWorkload(schedule(SPLIT), config(name, seed), CPU).stage(0, 1) for seed in (0, 0, 1))
        for (_, ours), (_, theirs) in zip(one.named_parameters(), two.named_parameters(), strict=True):
            assert torch.equal(ours, theirs)
        assert not torch.equal(one.named_parameters()[0][1], other.named_parameters()[0][1])


def test_buffers_have_the_shape_of_what_comes() -> None:
    workload = OwnWorkload(schedule(SPLIT), config("floats"), CPU)
    workload.stage(0, 1)
    assert workload.buffer(parse_action("1RECV_F0")).shape == (3, 6)
    assert workload.buffer(parse_action("1RECV_B0")).shape == (3, 6)
    assert not workload.buffer(parse_action("1RECV_B0")).requires_grad


def told(name: str, actions: str = SPLIT) -> str:
    """The one line that a wrong model gives before the first step."""

    def start() -> None:
        workload = OwnWorkload(schedule(actions), config(name), CPU)
        for stage in range(3):
            workload.stage(0, stage)

    with pytest.raises(RunError) as caught:
        start()
    assert "\n" not in caught.value.message + caught.value.hint
    return f"{caught.value.message} ({caught.value.hint})"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tuples", "stage 1 gives a tuple of 2 (give one tensor"),
        ("detached", "the output of stage 1 depends on none of its weights"),
        ("no_fit", "stage 1 on a tensor of shape (2, 4, 6), float32: RuntimeError: mat1 and mat2"),
        ("in_place", "stage 1 on a tensor of shape (2, 4, 6), float32: RuntimeError: a leaf Variable"),
        ("no_module", "stage 1 is a int (give a module"),
        ("makes_no_module", "making stage 1 gave a str"),
        ("too_few", "made 2 stages, but the schedule has 3"),
        ("no_triple", "returned a list of 3 (end it with: return stages, batch, loss"),
        ("one_module", "returned a Linear for the stages"),
        ("no_loss", "returned a float for the loss"),
        ("loss_by_token", "the loss is a tensor of shape (2, 4, 7)"),
        ("no_batch", "the batch is a tensor of shape (4,)"),
        ("uneven_batch", "inputs of shape (3, 4) cannot be cut into 2 microbatches"),
        ("growing_batch", "the inputs of microbatch 1 are a tensor of shape (2, 4), int64, those of microbatch 0"),
        ("tied", "are one weight"),
        ("undivided", "stage 0 takes a tensor of shape (2, 4), int64, which have no gradient, as one Whole"),
        ("raising", "ValueError: no such luck"),
        ("without_parameters", "TypeError: without_parameters() takes 0 positional arguments but 2 were given"),
        ("number", "has no function 'number'"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_what_is_wrong_with_a_model_is_told_in_one_line(name: str, says: str) -> None:
    assert says in told(name)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("my_model.py:make", "names no function (write package.module:function, without .py)"),
        ("my_model", "names no function"),
        ("no_such_package.model:make", "there is no module no_such_package"),
        ("pipetrace.no_such_module:make", "there is no module pipetrace.no_such_module"),
    ],
)
def test_a_function_that_cannot_be_found(path: str, says: str) -> None:
    with pytest.raises(RunError) as caught:
        OwnModel(path, 3, 2, 0, CPU)
    assert says in f"{caught.value.message} ({caught.value.hint})"


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "halfway_model.py").write_text("import no_such_dependency\n")
    with pytest.raises(RunError, match="No module named 'no_such_dependency'"):
        OwnModel("halfway_model:make", 3, 2, 0, CPU)
    (tmp_path / "broken_model.py").write_text("def make(:\n")
    with pytest.raises(RunError, match="SyntaxError"):
        OwnModel("broken_model:make", 3, 2, 0, CPU)


def test_two_pipes_of_a_users_model_run_for_real(tmp_path: Path) -> None:
    own = RunConfig("own", stages=f"{own_models.__name__}:views", steps=1, warmup=0, check=True)
    result = run(pipetrace.build("dualpipe", 2, 4), own, tmp_path)
    assert result.check is not None
    assert result.check.bit_equal, result.check.text
    assert result.info.options["stages"] == own.stages
    with pytest.raises(RunError) as caught:
        run(pipetrace.build("1f1b", 3, 2), RunConfig("own", stages=f"{own_models.__name__}:tuples"), tmp_path)
    assert "raised RunError: --stages" in caught.value.message
    assert "stage 1 gives a tuple of 2" in caught.value.message
