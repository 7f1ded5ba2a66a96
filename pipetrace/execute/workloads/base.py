"""What a workload must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.execute.config import RunConfig
from pipetrace.execute.expert_parallel import Alone, Exchange
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.sleeping import pause
from pipetrace.execute.stages.base import Stage
from pipetrace.schedule import Schedule

Stages: TypeAlias = Mapping[tuple[int, int], Stage]
"""A rank's stages by (pipe, stage)."""


class Workload(Protocol):
    """Makes stages, and knows what travels between them."""

    def stage(self, pipe: int, stage: int) -> Stage:
        """A stage with its weights; the same on whatever rank it is made."""

    def buffer(self, receive: Action) -> torch.Tensor:
        """Room for the value that a RECV_F or RECV_B brings."""

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:
        """Compares what the last step left in a rank's stages with a reference.

        Args:
            program: What the rank ran, in the order in which it ran it.
            stages: What it ran it with.
            tick: To be called now and then, so that a long comparison does not pass for a stall.
        """


@dataclass(frozen=True, slots=True)
class Host:
    """Where a workload runs.

    Args:
        exchange: Of the replica that the rank belongs to.
        device: Where its tensors lie.
        sleep: A synthetic kernel of so many ns.
        use: Says that what runs now reads a tensor that may have been made on another stream.
    """

    exchange: Exchange = field(default_factory=Alone)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sleep: Callable[[int], None] = pause
    use: Callable[[torch.Tensor], None] = lambda _value: None


WorkloadFactory: TypeAlias = Callable[[Schedule, RunConfig, Host], Workload]
"""What "package.module:function" must name."""
