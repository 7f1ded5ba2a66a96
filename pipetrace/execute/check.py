"""Gradients and losses of a rank against a single-process run of the same model.

The reference builds the whole model, runs each microbatch through all stages as one autograd graph, and adds gradients
up in the order in which the schedule does: addition of floats depends on it. The same kernels on the same numbers in
the same order then give the same bits, and a difference is a fault of the pipeline: a value that went to the wrong
place, a microbatch left out, a weight gradient that was lost.

Where several pipes hold replicas of a stage, each pipe's microbatches are added up by themselves and then the pipes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from pipetrace.action import Kind
from pipetrace.execute.program import Program, compile_rank
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.stages.base import Stage
from pipetrace.schedule import Schedule

Made = TypeVar("Made", bound=Stage)


def compare(
    rank: int,
    stages: Mapping[tuple[int, int], AutogradStage],
    orders: Mapping[tuple[int, int], tuple[int, ...]],
    model: Callable[[], Sequence[AutogradStage]],
    tick: Callable[[], None],
) -> RankCheck:
    """Compares what a step left in a rank's stages with the reference.

    Args:
        rank: Whose.
        stages: Its stages by (pipe, stage), as the step left them.
        orders: See `weight_orders`; of all ranks.
        model: Makes all stages of the model afresh.
        tick: Called after each microbatch of the reference.
    """
    tally = Tally()
    held = {number for _, number in stages}
    references = _references({part: order for part, order in orders.items() if part[1] in held}, model, tick)
    for (pipe, number), stage in stages.items():
        replicas = [reference for part, reference in sorted(references.items()) if part[1] == number]
        for index, (name, weight) in enumerate(stage.named_parameters()):
            other = added([replica.gradients[index] for replica in replicas])
            tally.gradient(f"{name} of stage {number}", weight.grad, other)
        tally.losses(stage.losses, references[pipe, number].losses)
    return tally.result(rank)


def compare_stages(
    schedule: Schedule,
    program: Program,
    stages: Mapping[tuple[int, int], Stage],
    make: Callable[[int], AutogradStage],
    tick: Callable[[], None],
) -> RankCheck:
    """As `compare`, for a workload whose stages are autograd's.

    Args:
        schedule: What all ranks run.
        program: What the rank ran, in the order in which it did.
        stages: What it ran it with.
        make: Makes a stage afresh, by its number.
        tick: See `compare`.
    """
    mine, orders = stages_of(AutogradStage, stages), weight_orders(programs_with(schedule, program))
    return compare(program.rank, mine, orders, lambda: [make(stage) for stage in range(schedule.stages)], tick)


def stages_of(kind: type[Made], stages: Mapping[tuple[int, int], Stage]) -> dict[tuple[int, int], Made]:
    """A rank's stages, all of one kind.

    Raises:
        TypeError: One is of another: it was made by another workload.
    """
    found: dict[tuple[int, int], Made] = {}
    for held, stage in stages.items():
        if not isinstance(stage, kind):
            raise TypeError(f"{type(stage).__name__} is no stage of this workload")
        found[held] = stage
    return found


def programs_with(schedule: Schedule, program: Program) -> list[Program]:
    """The programs of all ranks, one of them as it ran."""
    return [program if rank == program.rank else compile_rank(schedule, rank) for rank in range(schedule.ranks)]


@dataclass(slots=True)
class Tally:
    """What was compared so far, and how it differed; see `RankCheck`."""

    compared: int = 0
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    loss_difference: float = 0.0
    bit_equal: bool = True
    worst: str = ""

    def gradient(self, name: str, ours: torch.Tensor | None, reference: torch.Tensor | None) -> None:
        """Compares one weight's gradient."""
        self.compared += 1
        absolute, relative = difference(ours, reference)
        self.bit_equal &= _same_bits(ours, reference)
        self.worst_abs = max(self.worst_abs, absolute)
        if relative > self.worst_rel:
            self.worst, self.worst_rel = name, relative

    def losses(self, ours: Mapping[int, torch.Tensor], reference: Mapping[int, torch.Tensor]) -> None:
        """Compares the sums of losses by microbatch; where the reference has none there is nothing to compare."""
        if reference:
            mine, theirs = (_total(losses, sorted(reference)) for losses in (ours, reference))
            self.bit_equal &= mine == theirs
            self.loss_difference = max(self.loss_difference, _distance(mine, theirs))

    def result(self, rank: int) -> RankCheck:
        """The outcome for one global rank."""
        return RankCheck(
            rank, self.compared, self.worst_abs, self.worst_rel, self.loss_difference, self.bit_equal, self.worst
        )


@dataclass(frozen=True, slots=True)
class _Reference:
    """What one pipe's microbatches leave in one stage: each weight's gradient, and the losses on the last stage."""

    gradients: list[torch.Tensor | None]
    losses: dict[int, torch.Tensor]


def _references(
    orders: Mapping[tuple[int, int], tuple[int, ...]],
    model: Callable[[], Sequence[AutogradStage]],
    tick: Callable[[], None],
) -> dict[tuple[int, int], _Reference]:
    """By (pipe, stage); stages whose order is the same share a run of the model."""
    found: dict[tuple[int, int], _Reference] = {}
    for order in dict.fromkeys(orders.values()):
        stages = model()
        run_reference(stages, order, tick)
        for part in (part for part, its in orders.items() if its == order):
            stage = stages[part[1]]
            found[part] = _Reference([weight.grad for _, weight in stage.named_parameters()], stage.losses)
    return found


def added(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """Their sum, in order; None where there is none."""
    total: torch.Tensor | None = None
    for gradient in gradients:
        if gradient is not None:
            total = gradient if total is None else total + gradient
    return total


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


def weight_orders(programs: Sequence[Program]) -> dict[tuple[int, int], tuple[int, ...]]:
    """For each (pipe, stage) that `programs` run, the order in which microbatches' weight gradients are added up."""
    orders: dict[tuple[int, int], list[int]] = {}
    for half in (half for program in programs for op in program.ops for half in op.halves):
        action = half.action
        if action.kind in (Kind.B, Kind.W) and action.microbatch is not None:
            orders.setdefault((action.pipe, action.stage), []).append(action.microbatch)
    return {part: tuple(order) for part, order in orders.items()}


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
