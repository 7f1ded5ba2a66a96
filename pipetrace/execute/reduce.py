"""Gradients of stages that several pipes hold, added up at the end of a step.

Each pipe of a bidirectional schedule is a replica of the whole model that sees its own share of the microbatches. What
the step's gradient is, is the sum over the replicas; afterwards every holder of a stage has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from pipetrace.action import Action, Kind
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.p2p import Transport
from pipetrace.execute.stages.base import Stage
from pipetrace.placement import Placement


@dataclass(frozen=True, slots=True)
class Reduction:
    """One stage's, on one rank.

    Args:
        action: What it is called; of the first pipe for which the rank holds the stage.
        held: (pipe, stage) on this rank, by pipe.
        ranks: All that hold the stage, this one too; sorted.
    """

    action: Action
    held: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]


def reductions(placement: Placement, rank: int) -> list[Reduction]:
    """What a rank takes part in, by stage, which is the order on all ranks: so none waits for another in a circle."""
    if placement.pipes == 1:
        return []
    found = []
    for stage in range(placement.stages):
        held = tuple((pipe, s) for pipe, s in placement.held_by(rank) if s == stage)
        if held:
            action = Action(Kind.REDUCE_GRAD, stage, pipe=held[0][0])
            found.append(Reduction(action, held, _holders(placement, stage)))
    return found


def groups(placement: Placement) -> list[tuple[int, ...]]:
    """The sets of ranks that reduce together, in an order that is the same everywhere."""
    if placement.pipes == 1:
        return []
    found = {_holders(placement, stage) for stage in range(placement.stages)}
    return sorted(ranks for ranks in found if len(ranks) > 1)


def _holders(placement: Placement, stage: int) -> tuple[int, ...]:
    return tuple(sorted({placement.rank(stage, pipe) for pipe in range(placement.pipes)}))


class GradientReduction:
    """Runs a rank's reductions, step after step.

    Args:
        work: What the rank takes part in.
        stages: Its stages by (pipe, stage).
        transport: How values travel.
        line: Where the rank says what it does.
        label: Marks it in the trace.
    """

    def __init__(
        self,
        work: Sequence[Reduction],
        stages: Mapping[tuple[int, int], Stage],
        transport: Transport,
        line: Line,
        label: Callable[[str], AbstractContextManager[object]],
    ) -> None:
        self._stages = stages
        self._transport = transport
        self._line = line
        self._label = label
        self._work = [(reduction, reduction.action.code, f"PP:{reduction.action}") for reduction in work]

    def run(self) -> None:
        """Leaves the sum in the gradients of every replica.

        Raises:
            RuntimeError: A rank at another end has gone.
        """
        for reduction, code, text in self._work:
            replicas = [self._stages[held].gradients() for held in reduction.held]
            if not replicas[0]:
                continue
            self._line.at(Phase.REDUCING, code)
            with self._label(text):
                total = _flat(replicas[0])
                for gradients in replicas[1:]:
                    total += _flat(gradients)
                self._transport.add_up(total, reduction.ranks)
                for gradients in replicas:
                    at = 0
                    for gradient in gradients:
                        gradient.copy_(total[at : at + gradient.numel()].view_as(gradient))
                        at += gradient.numel()


def _flat(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """A copy in one piece: one message instead of one a weight."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
