"""Gradients of stages that several ranks hold, added up at the end of a step.

Each pipe of a bidirectional schedule is a copy of the whole model that sees its own share of the microbatches, and each
replica of the pipeline one that sees microbatches of its own. What the step's gradient is, is the sum over the copies;
afterwards every holder of a stage has it. Experts are no copies: every replica has others, which have seen the tokens
of all replicas, so theirs are added up over the pipes of one replica alone.
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
        ranks: Global ranks of all that hold the stage, this one too; sorted.
        of_replica: Those of them that are of this replica.
    """

    action: Action
    held: tuple[tuple[int, int], ...]
    ranks: tuple[int, ...]
    of_replica: tuple[int, ...]


def reductions(placement: Placement, rank: int, replica: int = 0, replicas: int = 1) -> list[Reduction]:
    """What a pipeline rank takes part in, by stage: the same order on all ranks, so none waits in a circle."""
    if placement.pipes == 1 == replicas:
        return []
    found = []
    for stage in range(placement.stages):
        held = tuple((pipe, s) for pipe, s in placement.held_by(rank) if s == stage)
        if held:
            action = Action(Kind.REDUCE_GRAD, stage, pipe=held[0][0])
            mine = _holders(placement, stage, range(replica, replica + 1))
            found.append(Reduction(action, held, _holders(placement, stage, range(replicas)), mine))
    return found


def groups(placement: Placement, replicas: int = 1) -> list[tuple[int, ...]]:
    """The sets of global ranks that reduce together, in an order that is the same everywhere."""
    sets = [range(replica, replica + 1) for replica in range(replicas)] + [range(replicas)]
    found = {_holders(placement, stage, of) for stage in range(placement.stages) for of in sets}
    return sorted(ranks for ranks in found if len(ranks) > 1)


def _holders(placement: Placement, stage: int, replicas: Sequence[int]) -> tuple[int, ...]:
    of_one = {placement.rank(stage, pipe) for pipe in range(placement.pipes)}
    return tuple(sorted(replica * placement.ranks + rank for replica in replicas for rank in of_one))


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
        """Leaves the sum in the gradients of every copy.

        Raises:
            RuntimeError: A rank at another end has gone.
        """
        for reduction, code, text in self._work:
            stages = [self._stages[held] for held in reduction.held]
            copies = [
                (ranks, gradients)
                for ranks, gradients in (
                    (reduction.ranks, [stage.gradients() for stage in stages]),
                    (reduction.of_replica, [stage.expert_gradients() for stage in stages]),
                )
                if gradients[0] and len(ranks) * len(gradients) > 1
            ]
            if not copies:
                continue
            self._line.at(Phase.REDUCING, code)
            with self._label(text):
                for ranks, gradients in copies:
                    _add_up(gradients, lambda total, ranks=ranks: self._transport.add_up(total, ranks))  # type: ignore[misc]


class LocalReduction:
    """The same in a process that holds all copies of all stages.

    Args:
        placement: Of every replica.
        stages: Of each replica, by (pipe, stage).
        line, label: See `GradientReduction`.
    """

    def __init__(
        self,
        placement: Placement,
        stages: Sequence[Mapping[tuple[int, int], Stage]],
        line: Line,
        label: Callable[[str], AbstractContextManager[object]],
    ) -> None:
        self._stages, self._line, self._label = stages, line, label
        self._pipes = range(placement.pipes)
        # It is told as of the first rank that holds the stage.
        self._work = [
            Action(Kind.REDUCE_GRAD, stage, pipe=min(self._pipes, key=lambda pipe: placement.rank(stage, pipe)))
            for stage in range(placement.stages if len(self._pipes) * len(stages) > 1 else 0)
        ]

    def run(self) -> None:
        """See `GradientReduction`."""
        for action in self._work:
            copies = [[of[pipe, action.stage] for pipe in self._pipes] for of in self._stages]
            alike = [stage.gradients() for of in copies for stage in of]
            experts = [[stage.expert_gradients() for stage in of] for of in copies]
            together = [gradients for gradients in (alike, *experts) if gradients[0] and len(gradients) > 1]
            if together:
                self._line.at(Phase.REDUCING, action.code)
                with self._label(f"PP:{action}"):
                    for gradients in together:
                        _add_up(gradients)


def _add_up(
    copies: Sequence[Sequence[torch.Tensor]], with_others: Callable[[torch.Tensor], None] = lambda _total: None
) -> None:
    """Leaves the sum in all copies, to which `with_others` adds what other processes hold."""
    total = _flat(copies[0])
    for gradients in copies[1:]:
        total += _flat(gradients)
    with_others(total)
    for gradients in copies:
        at = 0
        for gradient in gradients:
            gradient.copy_(total[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()


def _flat(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """A copy in one piece: one message instead of one a weight."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
