"""What one F, B, I or W does, whoever runs it and however it waits."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from pipetrace.action import NO_ACTION, Action, Kind, Part
from pipetrace.execute.expert_parallel import Offering
from pipetrace.execute.program import Half
from pipetrace.execute.stages.base import OfferingStage, PartStage, Stage


def run_half(stages: Mapping[tuple[int, int], Stage], half: Half, value: torch.Tensor | None) -> torch.Tensor | None:
    """Runs an action on its stage.

    Args:
        stages: By (pipe, stage).
        half: What to run.
        value: What it takes; None where it takes nothing.

    Returns:
        What it gives, None where nobody takes it.

    Raises:
        RuntimeError: The value that it takes is not there, or the one that it gives.
    """
    action, stage, microbatch = half.action, *_prepared(stages, half, value)
    output = None
    if action.part is not None and action.layer is not None:
        if not isinstance(stage, PartStage):
            raise RuntimeError(f"{type(stage).__name__} cannot run {action}: it has no parts")
        output = stage.run_part(action.kind, action.layer, action.part, microbatch, value)
        return _given(half, output)
    match action.kind:
        case Kind.F:
            output = stage.forward(microbatch, value)
        case Kind.B:
            output = stage.backward(microbatch, value)
        case Kind.I:
            output = stage.backward_input(microbatch, value)
        case Kind.W:
            stage.backward_weight(microbatch)
        case _:
            raise RuntimeError(f"{action} is no compute")
    return _given(half, output)


def offered(stages: Mapping[tuple[int, int], Stage], half: Half, value: torch.Tensor | None) -> Offering:
    """As `run_half`, for an all-to-all that is taken apart into what its replica offers and what it makes of the rest.

    Raises:
        RuntimeError: As there, or the stage cannot do that.
    """
    _, microbatch = _prepared(stages, half, value)
    stage, layer, part = _apart(stages, half.action)
    output = yield from stage.part(half.action.kind, layer, part, microbatch, value)
    return _given(half, output)


def all_to_alls(stages: Mapping[tuple[int, int], Stage], half: Half) -> int:
    """How many all-to-alls an action makes.

    Raises:
        RuntimeError: The stage cannot take them apart.
    """
    stage, _, part = _apart(stages, half.action)
    return stage.all_to_alls(half.action.kind, part)


def _apart(stages: Mapping[tuple[int, int], Stage], action: Action) -> tuple[OfferingStage, int, Part]:
    stage = stages[action.pipe, action.stage]
    if action.part is None or action.layer is None or not isinstance(stage, OfferingStage):
        raise RuntimeError(f"{type(stage).__name__} cannot take the all-to-alls of {action} apart")
    return stage, action.layer, action.part


def _prepared(stages: Mapping[tuple[int, int], Stage], half: Half, value: torch.Tensor | None) -> tuple[Stage, int]:
    action = half.action
    if action.microbatch is None:
        raise RuntimeError(f"{action} concerns no microbatch")
    if value is None and half.takes != NO_ACTION:
        raise RuntimeError(f"{action} stands before what it takes")
    return stages[action.pipe, action.stage], action.microbatch


def _given(half: Half, output: torch.Tensor | None) -> torch.Tensor | None:
    if half.gives == NO_ACTION:
        return None
    if output is None:
        raise RuntimeError(f"{half.action} gave no value, but the next stage needs one")
    return output
