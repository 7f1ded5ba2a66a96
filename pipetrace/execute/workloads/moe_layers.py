"""The parts of a mixture-of-experts layer: attention with a router, experts, and the permutations between them.

::

    attn      x → h (x with attention added), rows (a copy of each token for each expert it goes to, by expert)
    dispatch  rows → the rows of all replicas that this replica's experts take: an all-to-all
    mlp       each row through its expert, scaled by its gate
    combine   back to where the rows came from, an all-to-all; added to h, token by token

A row carries its gate as its last entry, so that one all-to-all brings both, and its gradient back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import nn
from torch.nn import functional

from pipetrace.execute.workloads.transformer import CausalAttention


@dataclass(frozen=True, slots=True)
class Route:
    """Where a microbatch's tokens go.

    A *choice* is one of the `top_k` experts of a token; there are tokens × top_k, numbered token by token.

    Args:
        choices: How many there are.
        choice: All choices, by expert; shape (choices,).
        place: The row that each of these has; shape (choices,). One that is dropped has a row behind the last; rows
            that none has are padding.
        counts: Rows for each expert. Where they follow from a capacity, no host waits for a device to count.
    """

    choices: int
    choice: torch.Tensor
    place: torch.Tensor
    counts: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows, with padding."""
        return sum(self.counts)


def route(experts: torch.Tensor, among: int, capacity: int | None) -> Route:
    """Sorts choices by expert.

    Args:
        experts: The expert of each choice; shape (choices,).
        among: How many experts there are.
        capacity: Rows that each expert is given, padded where there are fewer; what goes beyond is dropped, the later
            tokens first. None for as many as there are.
    """
    order = torch.argsort(experts, stable=True)
    counts = torch.zeros(among, dtype=torch.int64, device=experts.device).index_add_(0, experts, torch.ones_like(order))
    place = torch.arange(order.numel(), device=experts.device)
    if capacity is None:
        return Route(experts.numel(), order, place, tuple(counts.tolist()))
    of = experts[order]
    position = place - (counts.cumsum(0) - counts)[of]
    place = torch.where(position < capacity, of * capacity + position, among * capacity)
    return Route(experts.numel(), order, place, (capacity,) * among)


def capacity_of(factor: float, tokens: int, top_k: int, experts: int) -> int | None:
    """Rows an expert is given by one replica's microbatch: `factor` times its even share; None for a factor of 0."""
    return ceil(factor * tokens * top_k / experts) if factor else None


class Attention(nn.Module):
    """Attention, then the router.

    Args:
        hidden: Width.
        heads: Attention heads; divide `hidden`.
        experts: To choose from.
        top_k: Chosen for a token.
        capacity: Factor, see `capacity_of`.
    """

    def __init__(self, hidden: int, heads: int, experts: int, top_k: int, capacity: float) -> None:
        super().__init__()
        self.experts, self.top_k, self.capacity = experts, top_k, capacity
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = CausalAttention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.router = nn.Linear(hidden, experts, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Route]:
        """Of x, shape (batch, sequence, hidden): h in the same shape, rows of shape (rows, hidden + 1), their route."""
        h = x + self.attention(self.norm1(x))
        tokens = self.norm2(h).flatten(0, 1)
        gates, chosen = self.router(tokens).softmax(-1).topk(self.top_k)
        of = route(chosen.flatten(), self.experts, capacity_of(self.capacity, len(tokens), self.top_k, self.experts))
        copies = tokens.unsqueeze(1).expand(-1, self.top_k, -1).flatten(0, 1)
        rows = torch.cat([copies, gates.reshape(-1, 1)], 1).index_select(0, of.choice)
        if self.capacity:
            rows = rows.new_zeros(of.rows + 1, rows.shape[1]).index_copy(0, of.place, rows)[:-1]
        return h, rows, of


class Expert(nn.Module):
    """An MLP of its own, scaled by each row's gate.

    Args:
        hidden: Width.
        inner: Width inside.
    """

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Shape (n, hidden + 1), the gate last, to shape (n, hidden)."""
        scaled: torch.Tensor = self.down(functional.gelu(self.up(rows[:, :-1]))) * rows[:, -1:]
        return scaled


@dataclass(frozen=True, slots=True)
class MoeLayer:
    """The modules of a layer: attention, which all replicas have alike, and the experts that one of them has."""

    attention: Attention
    experts: Sequence[nn.Module]


def run_experts(experts: Sequence[nn.Module], rows: torch.Tensor, counts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Each row through its expert.

    Args:
        experts: This replica's.
        rows: By the replica they came from, then by expert; shape (n, hidden + 1).
        counts: For each replica the rows for each expert.

    Returns:
        In the order of `rows`; shape (n, hidden).
    """
    sizes = [sum(each[number] for each in counts) for number in range(len(experts))]
    by_row = torch.tensor([number for each in counts for number, of in enumerate(each) for _ in range(of)])
    order = torch.argsort(by_row, stable=True)
    back = torch.argsort(order).to(rows.device, non_blocking=True)
    order = order.to(rows.device, non_blocking=True)
    # Each in memory of its own: the last bits of a product depend on how its factors are aligned.
    taken = [rows.index_select(0, of) for of in order.split_with_sizes(sizes)]
    outputs = torch.cat([expert(its) for expert, its in zip(experts, taken, strict=True)])
    return outputs.index_select(0, back)


def combined(h: torch.Tensor, returned: torch.Tensor, of: Route) -> torch.Tensor:
    """h with what came back added to each token; the shape of `h`, (batch, sequence, hidden)."""
    used = _with_dropped(returned).index_select(0, of.place)
    by_choice = used.new_zeros(of.choices, used.shape[1]).index_copy(0, of.choice, used)
    tokens = h.shape[0] * h.shape[1]
    return h + by_choice.view(tokens, of.choices // tokens, -1).sum(1).view_as(h)


def combined_gradient(gradient: torch.Tensor, of: Route) -> torch.Tensor:
    """The gradient of `returned` in `combined`; that of `h` is the gradient itself."""
    tokens = gradient.flatten(0, 1)
    by_choice = tokens.unsqueeze(1).expand(-1, of.choices // len(tokens), -1).flatten(0, 1)
    used = by_choice.index_select(0, of.choice)
    return used.new_zeros(of.rows + 1, used.shape[1]).index_copy(0, of.place, used)[:-1]


def _with_dropped(rows: torch.Tensor) -> torch.Tensor:
    """Rows with one behind them, of zeros, that all dropped choices have."""
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
