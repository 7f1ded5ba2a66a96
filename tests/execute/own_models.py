"""Models of users, right ones and wrong ones; loaded in the ranks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Parts = tuple[Any, Any, Any]


def _loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, -2), targets.flatten())


def _tokens(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.arange(microbatches * 2 * 5).view(2 * microbatches, 5) % 7
    return tokens[:, :-1], tokens[:, 1:]


def _stages(stages: int) -> list[nn.Module]:
    """Every output but the last is a view: what a Linear makes of more than two dimensions is."""
    made: list[nn.Module] = [nn.Sequential(nn.Tanh(), nn.Linear(6, 6)) for _ in range(stages)]
    made[0] = nn.Sequential(nn.Embedding(7, 6), made[0])
    made[-1] = nn.Sequential(made[-1], nn.Linear(6, 7))
    return made


def views(stages: int, microbatches: int) -> Parts:
    return _stages(stages), _tokens(microbatches), _loss


def made_alone(stages: int, microbatches: int) -> Parts:
    return [(lambda stage=stage: _stages(stages)[stage]) for stage in range(stages)], _tokens(microbatches), _loss


def floats(stages: int, microbatches: int) -> Parts:
    def batch(microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((3, 6), 0.1 * microbatch), torch.ones(3, 2)

    made: list[nn.Module] = [nn.Linear(6, 6) for _ in range(stages - 1)]
    return [*made, nn.Linear(6, 2)], batch, nn.MSELoss()


class Whole(nn.Module):
    """An embedding and more, not to be taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(7, 6), nn.Linear(6, 6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.linear(self.embedding(tokens))
        return out


def undivided(stages: int, microbatches: int) -> Parts:
    return [Whole(), *_stages(stages)[1:]], _tokens(microbatches), _loss


class Tuple(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


class Detached(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach() * 2


def _with(stage: int, module: Any) -> Callable[[int, int], Parts]:
    def make(stages: int, microbatches: int) -> Parts:
        made: list[Any] = _stages(stages)
        made[stage] = module
        return made, _tokens(microbatches), _loss

    return make


tuples = _with(1, Tuple())
detached = _with(1, Detached())
no_fit = _with(1, nn.Linear(5, 5))
in_place = _with(1, nn.ReLU(inplace=True))
no_module = _with(1, 3)
makes_no_module = _with(1, lambda: "stage")


def too_few(stages: int, microbatches: int) -> Parts:
    return _stages(stages)[:-1], _tokens(microbatches), _loss


def no_triple(stages: int, microbatches: int) -> list[nn.Module]:
    return _stages(stages)


def one_module(stages: int, microbatches: int) -> Parts:
    return nn.Linear(3, 3), _tokens(microbatches), _loss


def no_loss(stages: int, microbatches: int) -> Parts:
    return _stages(stages), _tokens(microbatches), 0.5


def loss_by_token(stages: int, microbatches: int) -> Parts:
    return _stages(stages), _tokens(microbatches), lambda output, _targets: output


def no_batch(stages: int, microbatches: int) -> Parts:
    return _stages(stages), torch.ones(4), _loss


def uneven_batch(stages: int, microbatches: int) -> Parts:
    inputs, targets = _tokens(microbatches)
    return _stages(stages), (inputs[:-1], targets[:-1]), _loss


def growing_batch(stages: int, microbatches: int) -> Parts:
    inputs, targets = _tokens(microbatches)
    return _stages(stages), lambda number: (inputs[: number + 1], targets[: number + 1]), _loss


def tied(stages: int, microbatches: int) -> Parts:
    made = _stages(stages)
    made[1] = made[0][1]  # type: ignore[index]
    return made, _tokens(microbatches), _loss


def raising(stages: int, microbatches: int) -> Parts:
    raise ValueError("no\nsuch luck")


def without_parameters() -> None:
    """Cannot be called as it is to be."""


number = 3
