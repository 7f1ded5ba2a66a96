from __future__ import annotations

import pytest
import torch
from torch import nn

from pipetrace.execute.stages.autograd_stage import AutogradStage


def stage(*, first: bool = False, last: bool = False) -> AutogradStage:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    inlet = nn.Embedding(7, 4) if first else None
    tokens = torch.tensor([[1, 2, 3], [4, 5, 1]])
    return AutogradStage(
        body,
        inlet,
        inputs=(lambda microbatch: tokens + microbatch) if first else None,
        loss=(lambda output, microbatch: output.square().mean() * (microbatch + 1)) if last else None,
    )


X, GRADIENT = torch.linspace(-1, 1, 24).view(2, 3, 4), torch.linspace(2, -1, 24).view(2, 3, 4)


@pytest.mark.parametrize(("first", "last"), [(False, False), (True, False), (False, True), (True, True)])
def test_i_and_w_add_up_to_b(first: bool, last: bool) -> None:
    whole, split = stage(first=first, last=last), stage(first=first, last=last)
    value, gradient = None if first else X, None if last else GRADIENT
    for made in (whole, split):
        made.begin_step()
        outputs = [made.forward(microbatch, value) for microbatch in range(2)]
        assert all((output is None) == last for output in outputs)
    for microbatch in range(2):
        dx = whole.backward(microbatch, gradient)
        other = split.backward_input(microbatch, gradient)
        assert (dx is None) == (other is None) == first
        if dx is not None and other is not None:
            assert torch.equal(dx, other)
    assert all(weight.grad is None for _, weight in split.named_parameters())
    for microbatch in range(2):
        split.backward_weight(microbatch)
    for (name, ours), (_, theirs) in zip(split.named_parameters(), whole.named_parameters(), strict=True):
        assert ours.grad is not None, name
        assert theirs.grad is not None, name
        assert torch.equal(ours.grad, theirs.grad), name


def test_a_new_step_starts_at_nothing() -> None:
    made = stage(first=True, last=True)
    made.forward(0, None)
    made.backward(0, None)
    before = {name: weight.grad for name, weight in made.named_parameters()}
    made.begin_step()
    assert not made.losses
    made.forward(0, None)
    made.backward(0, None)
    for name, weight in made.named_parameters():
        again, once = weight.grad, before[name]
        assert again is not None
        assert once is not None
        assert torch.equal(again, once)


def test_a_gradient_that_autograd_shares_between_weights_is_not_added_to_twice() -> None:
    class Shifts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Parameter(torch.zeros(2, 3, 4)), nn.Parameter(torch.zeros(2, 3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.one + self.two

    made = AutogradStage(Shifts())
    for microbatch in range(3):
        made.forward(microbatch, X)
        made.backward_input(microbatch, GRADIENT)
    for microbatch in range(3):
        made.backward_weight(microbatch)
    for _, weight in made.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, 3 * GRADIENT)


def test_w_before_i_is_an_error() -> None:
    made = stage()
    made.forward(0, X)
    with pytest.raises(ValueError, match="before its I"):
        made.backward_weight(0)
