"""Gradients and losses of a rank against a single-process run of the same model.

The reference builds the whole model, runs each microbatch through all stages as one autograd graph, and adds gradients
up in the order in which the schedule does: addition of floats depends on it. The same kernels on the same numbers in
the same order then give the same bits, and a difference is a fault of the pipeline: a value that went to the wrong
place, a microbatch left out, a weight gradient that was lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from pipetrace.action import Kind
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.autograd_stage import AutogradStage


def compare(
    program: Program,
    stages: Mapping[tuple[int, int], AutogradStage],
    model: Callable[[], Sequence[AutogradStage]],
    tick: Callable[[], None],
) -> RankCheck:
    """Compares what a step left in a rank's stages with the reference.

    Args:
        program: What the rank ran.
        stages: Its stages by (pipe, stage), as the step left them.
        model: Makes all stages of the model afresh.
        tick: Called after each microbatch of the reference.
    """
    worst, worst_rel, worst_abs, loss_difference = "", 0.0, 0.0, 0.0
    bit_equal, compared = True, 0
    for order, held in _by_order(program).items():
        reference = model()
        run_reference(reference, order, tick)
        for pipe, number in held:
            stage, wanted = stages[pipe, number], reference[number]
            for (name, weight), (_, other) in zip(stage.named_parameters(), wanted.named_parameters(), strict=True):
                compared += 1
                absolute, relative = difference(weight.grad, other.grad)
                bit_equal &= _same_bits(weight.grad, other.grad)
                worst_abs = max(worst_abs, absolute)
                if relative > worst_rel:
                    worst, worst_rel = f"{name} of stage {number}", relative
            if wanted.losses:
                ours, theirs = (_total(losses, sorted(wanted.losses)) for losses in (stage.losses, wanted.losses))
                bit_equal &= ours == theirs
                loss_difference = max(loss_difference, _distance(ours, theirs))
    return RankCheck(program.rank, compared, worst_abs, worst_rel, loss_difference, bit_equal, worst)


def run_reference(stages: Sequence[AutogradStage], order: Sequence[int], tick: Callable[[], None]) -> None:
    """Runs microbatches through a whole model in one process, one after the other; leaves gradients and losses."""
    for stage in stages:
        stage.begin_step()
    for microbatch in order:
        value: torch.Tensor | None = None
        for stage in stages:
            value = stage.leave(microbatch, stage.enter(microbatch, value))
        if value is None:
            raise ValueError("a model needs a stage")
        stages[-1].losses[microbatch] = value.detach()
        torch.autograd.backward(value)
        tick()


def difference(ours: torch.Tensor | None, reference: torch.Tensor | None) -> tuple[float, float]:
    """Largest absolute difference of two gradients, and relative to the reference's largest entry.

    Both are infinite where only one gradient is there, or where either holds a NaN.
    """
    if ours is None and reference is None:
        return 0.0, 0.0
    if ours is None or reference is None:
        return math.inf, math.inf
    absolute = float((ours - reference).abs().max())
    if absolute == 0.0:
        return 0.0, 0.0
    scale = float(reference.abs().max())
    if not math.isfinite(absolute) or not math.isfinite(scale):
        return math.inf, math.inf
    return absolute, absolute / scale if scale else math.inf


def _by_order(program: Program) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """A rank's stages by the order in which their microbatches' weight gradients are added up."""
    orders: dict[tuple[int, int], list[int]] = {}
    for op in program.ops:
        for half in op.halves:
            action = half.action
            if action.kind in (Kind.B, Kind.W) and action.microbatch is not None:
                orders.setdefault((action.pipe, action.stage), []).append(action.microbatch)
    stages: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for held, order in orders.items():
        stages.setdefault(tuple(order), []).append(held)
    return stages


def _same_bits(ours: torch.Tensor | None, reference: torch.Tensor | None) -> bool:
    if ours is None or reference is None:
        return ours is reference
    return torch.equal(ours, reference)


def _total(losses: Mapping[int, torch.Tensor], microbatches: Sequence[int]) -> float:
    """Losses added up in one order, whatever order they came in; NaN where one is missing."""
    return sum(float(losses[microbatch]) if microbatch in losses else math.nan for microbatch in microbatches)


def _distance(ours: float, reference: float) -> float:
    distance = abs(ours - reference)
    return math.inf if math.isnan(distance) else distance
