"""A piece of a stage that autograd differentiates: its forward, and its backward whole or split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from pipetrace.execute.stages.split_backward import SplitBackward


@dataclass(slots=True)
class _Kept:
    """What a microbatch leaves between its F and its W."""

    leaf: torch.Tensor
    outputs: Sequence[torch.Tensor]
    split: SplitBackward | None = None


class Piece:
    """One input, any number of outputs, and the weights between them. Each microbatch goes through it by itself.

    Args:
        weights: Those that require grad; the piece adds their gradients up.
        use: Is told of tensors that autograd may have made on another stream than the one that takes them.
    """

    def __init__(
        self, weights: Sequence[nn.Parameter], use: Callable[[torch.Tensor], None] = lambda _value: None
    ) -> None:
        self._weights, self._use = weights, use
        self._kept: dict[int, _Kept] = {}

    def clear(self) -> None:
        """Forgets what microbatches left."""
        self._kept.clear()

    def forward(
        self, microbatch: int, value: torch.Tensor, function: Callable[[torch.Tensor], Sequence[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """F: what `function` makes of the value; detached."""
        leaf = value.detach().requires_grad_()
        outputs = function(leaf)
        self._kept[microbatch] = _Kept(leaf, outputs)
        return [output.detach() for output in outputs]

    def backward(self, microbatch: int, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """B: the gradient of the input from those of the outputs, None for a loss. Adds the weights' gradients up."""
        kept = self._kept.pop(microbatch)
        torch.autograd.backward(kept.outputs, gradients)
        return torch.zeros_like(kept.leaf) if kept.leaf.grad is None else kept.leaf.grad

    def backward_input(self, microbatch: int, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """I: as B, without the weights' gradients."""
        kept = self._kept[microbatch]
        kept.split = SplitBackward(kept.outputs, kept.leaf, self._weights)
        return kept.split.input_gradient(gradients)

    def backward_weight(self, microbatch: int) -> None:
        """W: adds the weights' gradients of a microbatch whose I has run."""
        split = self._kept.pop(microbatch).split
        if split is None:
            raise ValueError(f"W of microbatch {microbatch} stands before its I")
        for weight, gradient in zip(self._weights, split.weight_gradients(), strict=True):
            if gradient is not None:
                self._use(gradient)
                # A copy first: autograd may give one tensor to several weights, and adding in place would change all.
                weight.grad = gradient.clone() if weight.grad is None else weight.grad.add_(gradient)


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a module that require grad."""
    return [weight for weight in module.parameters() if weight.requires_grad]


def summed_gradients(weights: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    """What a step has added up, to be changed in place; zeros for a weight that it had no use for.

    Another copy of the stage may have had one.
    """
    found = []
    for weight in weights:
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
        found.append(weight.grad)
    return found
