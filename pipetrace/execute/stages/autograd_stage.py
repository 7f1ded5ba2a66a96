"""A stage made of torch modules, with its backward whole or split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from pipetrace.execute.stages.split_backward import SplitBackward

Loss = Callable[[torch.Tensor, int], torch.Tensor]
"""(output of the last stage, microbatch) → scalar."""


@dataclass(slots=True)
class _Kept:
    """What a microbatch leaves between its F and its W."""

    entered: torch.Tensor
    leaf: torch.Tensor
    output: torch.Tensor
    split: SplitBackward | None = None
    leaf_gradient: torch.Tensor | None = None


class AutogradStage:
    """A stage of torch modules.

    The body starts from a leaf that requires grad. On the first stage, whose input is integer tokens, that leaf is the
    output of `inlet`; so its I is the body's dX as on any other stage, and its W the body's weights and the inlet's.

    Args:
        body: (value) → output. Its weights' gradients are W.
        inlet: On the first stage, (input of a microbatch) → value; None elsewhere.
        inputs: On the first stage, microbatch → what the inlet takes.
        loss: On the last stage.
    """

    def __init__(
        self,
        body: nn.Module,
        inlet: nn.Module | None = None,
        inputs: Callable[[int], torch.Tensor] | None = None,
        loss: Loss | None = None,
    ) -> None:
        self.body, self.inlet = body, inlet
        self._inputs, self._loss = inputs, loss
        self._weights = [weight for weight in body.parameters() if weight.requires_grad]
        self._kept: dict[int, _Kept] = {}
        self.losses: dict[int, torch.Tensor] = {}

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """All weights of the stage with their names."""
        named = [] if self.inlet is None else [(f"inlet.{name}", p) for name, p in self.inlet.named_parameters()]
        return named + list(self.body.named_parameters())

    def begin_step(self) -> None:
        """See `Stage`."""
        self._kept.clear()
        self.losses.clear()
        for _, weight in self.named_parameters():
            weight.grad = None

    def enter(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor:
        """What the body starts from: the inlet's output on the first stage, `value` elsewhere."""
        if self.inlet is None:
            if value is None:
                raise ValueError("a stage without an inlet needs a value")
            return value
        if self._inputs is None:
            raise ValueError("a stage with an inlet needs inputs")
        entered: torch.Tensor = self.inlet(self._inputs(microbatch))
        return entered

    def leave(self, microbatch: int, value: torch.Tensor) -> torch.Tensor:
        """The body's output for what it starts from; on the last stage, the loss."""
        output: torch.Tensor = self.body(value)
        return output if self._loss is None else self._loss(output, microbatch)

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        entered = self.enter(microbatch, value)
        leaf = entered.detach().requires_grad_()
        output = self.leave(microbatch, leaf)
        self._kept[microbatch] = _Kept(entered, leaf, output)
        if self._loss is not None:
            self.losses[microbatch] = output.detach()
            return None
        return output.detach().contiguous()

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        kept = self._kept.pop(microbatch)
        torch.autograd.backward(kept.output, gradient)
        return self._pass_on(kept, kept.leaf.grad)

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        kept = self._kept[microbatch]
        kept.split = SplitBackward(kept.output, kept.leaf, self._weights)
        kept.leaf_gradient = kept.split.input_gradient(gradient)
        return None if self.inlet is not None else kept.leaf_gradient.contiguous()

    def backward_weight(self, microbatch: int) -> None:
        """See `Stage`."""
        kept = self._kept.pop(microbatch)
        if kept.split is None:
            raise ValueError(f"W of microbatch {microbatch} stands before its I")
        for weight, gradient in zip(self._weights, kept.split.weight_gradients(), strict=True):
            if gradient is not None:
                # A copy first: autograd may give one tensor to several weights, and adding in place would change all.
                weight.grad = gradient.clone() if weight.grad is None else weight.grad.add_(gradient)
        if self.inlet is not None:
            self._pass_on(kept, kept.leaf_gradient)

    def gradients(self) -> list[torch.Tensor]:
        """See `Stage`."""
        found = []
        for _, weight in self.named_parameters():
            if weight.requires_grad:
                # A replica may have given a weight a gradient where this one has not.
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                found.append(weight.grad)
        return found

    def _pass_on(self, kept: _Kept, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """The gradient for the stage before; on the first stage it goes into the inlet's weights instead."""
        if gradient is None:
            gradient = torch.zeros_like(kept.leaf)
        if self.inlet is None:
            return gradient.contiguous()
        if kept.entered.requires_grad:
            torch.autograd.backward(kept.entered, gradient)
        return None
