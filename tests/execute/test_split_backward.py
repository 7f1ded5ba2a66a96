"""The oracle is two passes of `torch.autograd.grad` over the whole graph: right for any graph, and slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from pipetrace.errors import RunError
from pipetrace.execute.stages.split_backward import SplitBackward
from pipetrace.execute.workloads.transformer import Block


class Residual(nn.Module):
    """Weights on a branch, beside the chain, and a bias that meets it by addition."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6, bias=False)
        self.gain, self.shift = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch: torch.Tensor = self.down(torch.tanh(self.up(x))) * self.gain.exp()
        return x + branch + self.shift


class Tied(nn.Module):
    """One weight used at two depths, and one that is computed once and used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.norm = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 6))
        self.once = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norm / self.norm.norm()
        x = torch.tanh(self.twice(x)) @ normal
        y: torch.Tensor = self.twice(torch.relu(self.once(x))) @ normal
        return y


class Unused(nn.Module):
    """A weight that does nothing, and one that has nothing to do with the input."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.constant = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + torch.sin(self.constant)


class Several(nn.Module):
    """A node with several outputs on the chain, cut above and below."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.end = nn.Linear(6, 6), nn.Linear(2, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.mix(x).split(2, dim=-1)
        y: torch.Tensor = self.end(first * torch.sigmoid(third)) + self.end.bias * second.sum(-1, keepdim=True)
        return y


class WithoutInput(nn.Module):
    """An output that does not depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight.exp().expand(x.shape)


class View(nn.Module):
    """A plain Linear on three dimensions: its output is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


MODULES: list[Callable[[], nn.Module]] = [
    Residual,
    Tied,
    Unused,
    Several,
    WithoutInput,
    View,
    nn.Tanh,
    lambda: nn.Sequential(Block(6, 2), Block(6, 2)),
    lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 6)),
]


def make(module: Callable[[], nn.Module]) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    made = module().double()
    return made, torch.randn(2, 3, 6).double().requires_grad_(), torch.randn(2, 3, 6).double()


@pytest.mark.parametrize("module", MODULES)
def test_both_halves_are_those_of_two_whole_passes(module: Callable[[], nn.Module]) -> None:
    made, x, gradient = make(module)
    weights = list(made.parameters())
    wanted = torch.autograd.grad(made(x), [x, *weights], gradient, allow_unused=True, materialize_grads=False)
    split = SplitBackward([made(x)], x, weights)
    dx = split.input_gradient([gradient])
    dw = split.weight_gradients()
    assert torch.equal(dx, torch.zeros_like(x) if wanted[0] is None else wanted[0])
    for ours, theirs in zip(dw, wanted[1:], strict=True):
        if ours is None or theirs is None:
            assert ours is theirs
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert all(weight.grad is None for weight in weights)


def test_a_loss_needs_no_gradient() -> None:
    made, x, _ = make(Residual)
    weights = list(made.parameters())
    wanted = torch.autograd.grad(made(x).square().mean(), [x, *weights])
    split = SplitBackward([made(x).square().mean()], x, weights)
    assert torch.equal(split.input_gradient([None]), wanted[0])
    for ours, theirs in zip(split.weight_gradients(), wanted[1:], strict=True):
        assert ours is not None
        assert torch.equal(ours, theirs)


class Product(torch.autograd.Function):
    """x @ w, as a node that Python owns."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x, w = ctx.saved_tensors
        return gradient @ w.T, x.T @ gradient


def test_nodes_written_in_python_are_cut_too() -> None:
    torch.manual_seed(2)
    x, gradient = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]

    def forward() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.tanh(Product.apply(y, weight))  # type: ignore[no-untyped-call]
        return y

    wanted = torch.autograd.grad(forward(), [x, *weights], gradient)
    split = SplitBackward([forward()], x, weights)
    assert torch.equal(split.input_gradient([gradient]), wanted[0])
    for ours, theirs in zip(split.weight_gradients(), wanted[1:], strict=True):
        assert ours is not None
        assert torch.equal(ours, theirs)


def ran(events: list[str], name: str) -> int:
    return sum(name in event for event in events)


def test_neither_half_does_the_others_work() -> None:
    torch.manual_seed(3)
    made = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(6, 6), nn.Tanh())))
    x, gradient = torch.randn(5, 6, requires_grad=True), torch.randn(5, 6)
    split = SplitBackward([made(x)], x, list(made.parameters()))

    def products(half: Callable[[], object]) -> int:
        with torch.autograd.profiler.profile(use_kineto=False) as recorded:
            half()
        return ran([event.name for event in recorded.function_events], "aten::mm")

    # One product a layer and half. Two whole passes would have 4, and then 4 + 3.
    assert products(lambda: split.input_gradient([gradient])) == 4
    assert products(split.weight_gradients) == 4


def test_w_before_i_and_an_input_without_grad_are_refused() -> None:
    made, x, gradient = make(Residual)
    split = SplitBackward([made(x)], x, list(made.parameters()))
    with pytest.raises(RunError, match="before its input gradient"):
        split.weight_gradients()
    split = SplitBackward([made(x)], x.detach(), list(made.parameters()))
    with pytest.raises(RunError, match="requires no grad"):
        split.input_gradient([gradient])


def test_several_microbatches_may_be_between_their_halves() -> None:
    made, x, gradient = make(Residual)
    weights = list(made.parameters())
    inputs = [x.detach() * (i + 1) for i in range(3)]
    for value in inputs:
        value.requires_grad_()
    splits = [SplitBackward([made(value)], value, weights) for value in inputs]
    for split in splits:
        split.input_gradient([gradient])
    for value, split in zip(inputs, splits, strict=True):
        wanted = torch.autograd.grad(functional.hardtanh(made(value), -1e9, 1e9), weights, gradient)
        for ours, theirs in zip(split.weight_gradients(), wanted, strict=True):
            assert ours is not None
            assert torch.equal(ours, theirs)
