"""A stage made of torch modules, with its backward whole or split."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from pipetrace.execute.stages.piece import Piece, summed_gradients, trainable

Loss = Callable[[torch.Tensor, int], torch.Tensor]
"""(output of the last stage, microbatch) → scalar."""


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
        self._piece = Piece(trainable(body))
        self._entered: dict[int, torch.Tensor] = {}
        self._leaf_gradients: dict[int, torch.Tensor] = {}
        self.losses: dict[int, torch.Tensor] = {}

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """All weights of the stage with their names."""
        named = [] if self.inlet is None else [(f"inlet.{name}", p) for name, p in self.inlet.named_parameters()]
        return named + list(self.body.named_parameters())

    def begin_step(self) -> None:
        """See `Stage`."""
        self._piece.clear()
        self._entered.clear()
        self._leaf_gradients.clear()
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
        if self.inlet is not None:
            self._entered[microbatch] = entered
        (output,) = self._piece.forward(microbatch, entered, lambda leaf: [self.leave(microbatch, leaf)])
        if self._loss is not None:
            self.losses[microbatch] = output
            return None
        return output.contiguous()

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        leaf_gradient = self._piece.backward(microbatch, [gradient])
        if self.inlet is None:
            return leaf_gradient.contiguous()
        self._pass_on(microbatch, leaf_gradient)
        return None

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        leaf_gradient = self._piece.backward_input(microbatch, [gradient])
        if self.inlet is None:
            return leaf_gradient.contiguous()
        self._leaf_gradients[microbatch] = leaf_gradient
        return None

    def backward_weight(self, microbatch: int) -> None:
        """See `Stage`."""
        self._piece.backward_weight(microbatch)
        if self.inlet is not None:
            self._pass_on(microbatch, self._leaf_gradients.pop(microbatch))

    def gradients(self) -> list[torch.Tensor]:
        """See `Stage`."""
        return summed_gradients([weight for _, weight in self.named_parameters() if weight.requires_grad])

    def expert_gradients(self) -> list[torch.Tensor]:
        """See `Stage`: there are no experts."""
        return []

    def _pass_on(self, microbatch: int, gradient: torch.Tensor) -> None:
        """The gradient of what the inlet gave goes into the inlet's weights."""
        entered = self._entered.pop(microbatch)
        if entered.requires_grad:
            torch.autograd.backward(entered, gradient)
