"""`moe`: transformer layers whose MLP is a choice of experts, with all-to-alls over an expert-parallel group.

Replica e of E runs the whole pipeline on microbatches of its own and holds the e-th share of every layer's experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

from pipetrace.action import Action
from pipetrace.execute.check import programs_with, stages_of
from pipetrace.execute.config import RunConfig
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.moe_stage import MoeStage
from pipetrace.execute.workloads.base import Host, Stages
from pipetrace.execute.workloads.moe_layers import Attention, Expert, MoeLayer
from pipetrace.execute.workloads.moe_reference import ReferenceStage, compare_with_reference
from pipetrace.execute.workloads.transformer import VOCABULARY, Embedding
from pipetrace.schedule import Schedule

_TOKENS, _STAGES = 1, 2  # streams of random numbers

Module = TypeVar("Module", bound=nn.Module)


class MoeWorkload:
    """See the module. Weights and tokens follow from the seed, so that any rank makes any stage the same."""

    def __init__(self, schedule: Schedule, config: RunConfig, host: Host) -> None:
        self._schedule, self._config, self._host, self._exchange = schedule, config, host, host.exchange
        self._dtype = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}[config.dtype]

    def _seed(self, stream: int, number: int) -> int:
        return (self._config.seed << 30) + (stream << 28) + number

    def tokens(self, replica: int, microbatch: int) -> torch.Tensor:
        """Synthetic tokens of one replica's microbatch, the same in every step; shape (batch, sequence + 1)."""
        number = replica * self._schedule.microbatches + microbatch
        generator = torch.Generator().manual_seed(self._seed(_TOKENS, number))
        size = (self._config.batch, self._config.sequence + 1)
        return torch.randint(VOCABULARY, size, generator=generator).to(self._host.device)

    def modules(self, stage: int) -> ReferenceStage:
        """A stage with all experts."""
        config, made = self._config, self._schedule.stages
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed(_STAGES, stage))
            layers = [
                MoeLayer(
                    self._placed(Attention(config.hidden, config.heads, config.experts, config.top_k, config.capacity)),
                    [self._placed(Expert(config.hidden, config.expert_hidden)) for _ in range(config.experts)],
                )
                for _ in range(config.layers)
            ]
            head: nn.Module = nn.Sequential(nn.LayerNorm(config.hidden), nn.Linear(config.hidden, VOCABULARY))
            inlet = Embedding(config.sequence, config.hidden)
        return ReferenceStage(
            layers,
            self._placed(inlet) if stage == 0 else None,
            self._placed(head) if stage == made - 1 else None,
        )

    def _placed(self, module: Module) -> Module:
        return module.to(self._host.device, self._dtype)

    def stage(self, pipe: int, stage: int) -> MoeStage:  # noqa: ARG002 - pipes are copies
        """See `Workload`."""
        whole, config, exchange = self.modules(stage), self._config, self._exchange
        own = config.experts // exchange.replicas
        mine = slice(exchange.replica * own, (exchange.replica + 1) * own)
        # Made before the steps: making tokens is no part of a forward.
        count = self._schedule.microbatches if whole.inlet is not None or whole.head is not None else 0
        inputs = [self.inputs(exchange.replica, microbatch) for microbatch in range(count)]
        targets = [self.targets(exchange.replica, microbatch) for microbatch in range(count)]
        return MoeStage(
            [MoeLayer(layer.attention, layer.experts[mine]) for layer in whole.layers],
            self._host,
            padded=config.capacity > 0,
            inlet=whole.inlet,
            inputs=inputs.__getitem__ if whole.inlet is not None else None,
            head=whole.head,
            loss=(lambda output, microbatch: self.loss(output, targets[microbatch]))
            if whole.head is not None
            else None,
        )

    def inputs(self, replica: int, microbatch: int) -> torch.Tensor:
        """Tokens that a microbatch shows; shape (batch, sequence)."""
        return self.tokens(replica, microbatch)[:, :-1].contiguous()

    def targets(self, replica: int, microbatch: int) -> torch.Tensor:
        """Tokens that are to be foretold; shape (batch × sequence,)."""
        return self.tokens(replica, microbatch)[:, 1:].reshape(-1)

    def loss(self, output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """A microbatch's share of the mean over the step and all replicas."""
        mean = functional.cross_entropy(output.view(-1, VOCABULARY), targets)
        return mean / (self._schedule.microbatches * self._exchange.replicas)

    def buffer(self, receive: Action) -> torch.Tensor:  # noqa: ARG002 - all messages are alike
        """See `Workload`."""
        size = (self._config.batch, self._config.sequence, self._config.hidden)
        return torch.empty(size, dtype=self._dtype, device=self._host.device)

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:
        """See `Workload`: gradients and losses against a single process that has all experts and all tokens."""
        schedule, mine = self._schedule, stages_of(MoeStage, stages)
        rank = self._exchange.replica * schedule.ranks + program.rank
        actions = (half.action for of in programs_with(schedule, program) for op in of.ops for half in op.halves)
        return compare_with_reference(rank, self._exchange, actions, schedule.stages - 1, mine, self, tick)


def build(schedule: Schedule, config: RunConfig, host: Host) -> MoeWorkload:
    """The workload that `--workload moe` runs."""
    return MoeWorkload(schedule, config, host)
