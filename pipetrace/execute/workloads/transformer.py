"""`transformer`: real pre-norm blocks with autograd; the first stage embeds, the last has the head and the loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from pipetrace.action import Action
from pipetrace.execute.check import compare_stages
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.workloads.base import Host, Stages
from pipetrace.schedule import Schedule

VOCABULARY = 256
"""Tokens there are: few, so that embedding and head stay small beside the blocks and the stages balanced."""

_MLP_FACTOR = 4
_TOKENS, _STAGES = 1, 2  # streams of random numbers
_CPU = torch.device("cpu")


class CausalAttention(nn.Module):
    """Causal attention: a token sees those before it and itself.

    Args:
        hidden: Width.
        heads: Attention heads; divide `hidden`.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, sequence, hidden), in and out."""
        batch, sequence, hidden = x.shape
        qkv = self.qkv(x).view(batch, sequence, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attention = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: torch.Tensor = self.proj(attention.transpose(1, 2).reshape(batch, sequence, hidden))
        return projected


class Block(nn.Module):
    """A pre-norm transformer block: causal attention, then an MLP, each added to what it took.

    Args:
        hidden: Width.
        heads: Attention heads.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = CausalAttention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, _MLP_FACTOR * hidden)
        self.down = nn.Linear(_MLP_FACTOR * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, sequence, hidden), in and out."""
        x = x + self.attention(self.norm1(x))
        x = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return x  # noqa: RET504 - two lines that read alike


class Embedding(nn.Module):
    """Token and position embedding: tokens, shape (batch, sequence), to shape (batch, sequence, hidden)."""

    def __init__(self, sequence: int, hidden: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, hidden)
        self.position = nn.Parameter(torch.randn(sequence, hidden) * 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """See the class."""
        embedded: torch.Tensor = self.token(tokens) + self.position
        return embedded


class TransformerWorkload:
    """See the module. Weights and tokens follow from the seed, so that any rank makes any stage the same."""

    def __init__(self, schedule: Schedule, config: RunConfig, device: torch.device = _CPU) -> None:
        self._schedule, self._config, self._device = schedule, config, device
        self._dtype = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}[config.dtype]

    def _seed(self, stream: int, number: int) -> int:
        return (self._config.seed << 24) + (stream << 22) + number

    def tokens(self, microbatch: int) -> torch.Tensor:
        """Synthetic tokens of a microbatch, the same in every step; shape (batch, sequence + 1)."""
        generator = torch.Generator().manual_seed(self._seed(_TOKENS, microbatch))
        size = (self._config.batch, self._config.sequence + 1)
        return torch.randint(VOCABULARY, size, generator=generator).to(self._device)

    def stage(self, pipe: int, stage: int) -> AutogradStage:  # noqa: ARG002 - pipes are replicas
        """See `Workload`."""
        config = self._config
        first, last = stage == 0, stage == self._schedule.stages - 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed(_STAGES, stage))
            layers: list[nn.Module] = [Block(config.hidden, config.heads) for _ in range(config.layers)]
            if last:
                layers += [nn.LayerNorm(config.hidden), nn.Linear(config.hidden, VOCABULARY)]
            body = nn.Sequential(*layers).to(self._device, self._dtype)
            inlet = Embedding(config.sequence, config.hidden).to(self._device, self._dtype) if first else None
        # Made before the steps: making tokens is no part of a forward.
        batches = [self.tokens(microbatch) for microbatch in range(self._schedule.microbatches if first or last else 0)]
        inputs = [tokens[:, :-1].contiguous() for tokens in batches]
        targets = [tokens[:, 1:].reshape(-1) for tokens in batches]

        def loss(output: torch.Tensor, microbatch: int) -> torch.Tensor:
            # Each microbatch's share of the step's mean, so that the gradients add up to the mean's.
            mean = functional.cross_entropy(output.view(-1, VOCABULARY), targets[microbatch])
            return mean / self._schedule.microbatches

        return AutogradStage(body, inlet, inputs=inputs.__getitem__ if first else None, loss=loss if last else None)

    def buffer(self, receive: Action) -> torch.Tensor:  # noqa: ARG002 - all messages are alike
        """See `Workload`."""
        size = (self._config.batch, self._config.sequence, self._config.hidden)
        return torch.empty(size, dtype=self._dtype, device=self._device)

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:
        """See `Workload`: gradients and losses against a single process."""
        return compare_stages(self._schedule, program, stages, lambda stage: self.stage(0, stage), tick)


def build(schedule: Schedule, config: RunConfig, host: Host) -> TransformerWorkload:
    """The workload that `--workload transformer` runs."""
    return TransformerWorkload(schedule, config, host.device)
