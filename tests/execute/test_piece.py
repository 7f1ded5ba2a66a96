from __future__ import annotations

import pytest
import torch
from torch import nn

from pipetrace.execute.stages.piece import Piece, summed_gradients, trainable


class Two(nn.Module):
    """Two outputs, one of which the other is made of, as a residual and what branches off it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 3)
        self.other.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + torch.tanh(self.one(x))
        return h, self.other(h)


X, GRADIENTS = torch.linspace(-1, 1, 8).view(2, 4), [torch.linspace(2, -1, 8).view(2, 4), torch.ones(2, 3)]


def test_a_split_backward_of_several_outputs_is_the_whole_one() -> None:
    whole, split = Two(), Two()
    one, other = Piece(trainable(whole)), Piece(trainable(split))
    for microbatch in range(2):
        for piece, module in ((one, whole), (other, split)):
            outputs = piece.forward(microbatch, X + microbatch, module)
            assert not any(output.requires_grad for output in outputs)
        dx = one.backward(microbatch, GRADIENTS)
        assert torch.equal(dx, other.backward_input(microbatch, GRADIENTS))
        wanted = torch.autograd.grad(whole(leaf := (X + microbatch).requires_grad_()), leaf, GRADIENTS)[0]
        assert torch.equal(dx, wanted)
    assert split.one.weight.grad is None
    for microbatch in range(2):
        other.backward_weight(microbatch)
    for ours, theirs in zip(trainable(split), trainable(whole), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)
    assert len(trainable(split)) == 3


def test_w_comes_after_i() -> None:
    module = Two()
    piece = Piece(trainable(module))
    piece.forward(0, X, module)
    with pytest.raises(ValueError, match="W of microbatch 0 stands before its I"):
        piece.backward_weight(0)


def test_a_weight_without_use_counts_as_zero() -> None:
    module = Two()
    assert [float(gradient.sum()) for gradient in summed_gradients(trainable(module))] == [0.0] * 3
