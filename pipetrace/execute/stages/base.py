"""What a stage must be able to do."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from pipetrace.action import Kind, Part
from pipetrace.execute.expert_parallel import Offering


class Stage(Protocol):
    """One (pipe, stage). Microbatches are numbered over the whole step.

    Values that are returned are contiguous, need no gradient, and stay unchanged to the end of the step, so that they
    can be sent, or handed to a stage on the same rank, as they are.
    """

    def begin_step(self) -> None:
        """Forgets the step before: gradients and losses start at nothing."""

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        """F. Takes the output of the stage before (None on the first), returns its own (None on the last)."""

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """B. Takes the gradient of its output (None on the last), returns that of its input (None on the first)."""

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """I. As B, without the weights' gradients."""

    def backward_weight(self, microbatch: int) -> None:
        """W. Adds the weights' gradients of a microbatch whose I has run."""

    def gradients(self) -> list[torch.Tensor]:
        """What the step has added up, to be changed in place: of every weight, in the same order in all copies.

        Without experts, which are not the same in all replicas.
        """

    def expert_gradients(self) -> list[torch.Tensor]:
        """The same of the experts that this replica alone has."""


@runtime_checkable
class PartStage(Stage, Protocol):
    """A stage of MoE layers whose parts can be run one by one, dispatch and combine in a thread of their own."""

    def run_part(
        self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None
    ) -> torch.Tensor | None:
        """One part of one layer.

        Args:
            kind: F, B, I, or for attn and mlp W.
            layer: Within the stage.
            part: Which.
            microbatch: Which.
            value: What the stage takes, for the first part of its F or of its B or I; ignored elsewhere.

        Returns:
            What the stage gives, of the last part of its F or of its B or I; None elsewhere.
        """


@runtime_checkable
class OfferingStage(PartStage, Protocol):
    """One whose all-to-alls can be taken apart, so that all replicas can be in one process."""

    def part(self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None) -> Offering:
        """As `run_part`, but yields what the stage gives in each all-to-all and is sent what came."""

    def all_to_alls(self, kind: Kind, part: Part) -> int:
        """How many all-to-alls a part makes."""
