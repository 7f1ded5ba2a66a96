"""`sleep`: actions that take exactly as long as they were told, and real messages between them.

Ranks that sleep do not compete for cores, so that the bubbles of p ranks can be measured on fewer than p cores and held
against the ideal. Every message carries the identity of its transfer, which the receiver compares.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pipetrace.action import ALL_TO_ALL_PARTS, Action, IntArray, Kind, Part, pack
from pipetrace.costs import StageCosts
from pipetrace.execute.check import stages_of
from pipetrace.execute.config import MIN_MESSAGE, RunConfig
from pipetrace.execute.expert_parallel import Offer, Offering, through
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.workloads.base import Host, Stages
from pipetrace.jitter import Jitter
from pipetrace.part_costs import LayerCosts
from pipetrace.schedule import Schedule

_HERE = Host()


class SleepStage:
    """A stage whose actions sleep.

    Args:
        stage, stages: Which of how many.
        pipe: Its pipe.
        microbatches: Of a step.
        costs: What its actions take.
        message_bytes: Size of what it sends.
        host: Where it sleeps, and where its messages lie.
        jitter: How far its actions scatter.
        layer: What the parts of its layers take, if it is run in parts.
        layers: How many these are.
    """

    def __init__(
        self,
        stage: int,
        stages: int,
        pipe: int,
        microbatches: int,
        costs: StageCosts,
        message_bytes: int,
        host: Host = _HERE,
        jitter: Jitter | None = None,
        layer: LayerCosts | None = None,
        layers: int = 1,
    ) -> None:
        self._host = host
        self._layer, self._layers, self._jitter = layer or LayerCosts(), layers, jitter
        self._row = torch.zeros(host.exchange.replicas, 1, device=host.device)
        backward = costs.recompute + costs.full_backward
        takes = {Kind.F: costs.F, Kind.B: backward, Kind.I: costs.recompute + costs.I, Kind.W: costs.W}
        self._takes = {
            (kind, microbatch): _scattered(pack(kind, stage, microbatch, pipe), ns, jitter)
            for kind, ns in takes.items()
            for microbatch in range(microbatches)
        }
        self._stage, self._pipe = stage, pipe
        self._first, self._last = stage == 0, stage == stages - 1
        self._outputs = self._messages(Kind.RECV_F, stage + 1, microbatches, 0 if self._last else message_bytes)
        self._gradients = self._messages(Kind.RECV_B, stage - 1, microbatches, 0 if self._first else message_bytes)
        self._received: list[tuple[int, torch.Tensor]] = []

    def _messages(self, kind: Kind, to: int, microbatches: int, size: int) -> list[torch.Tensor]:
        """A message for each microbatch, made once: its content is the code of the receive that it is for."""
        messages = []
        for microbatch in range(microbatches if size else 0):
            message = torch.zeros(size, dtype=torch.uint8)
            _identity(message)[0] = pack(kind, to, microbatch, self._pipe)
            messages.append(message.to(self._host.device))
        return messages

    def begin_step(self) -> None:
        """See `Stage`."""
        self._received = []

    def _act(self, kind: Kind, receives: Kind, microbatch: int, value: torch.Tensor | None) -> None:
        if value is not None:
            # Looked at after the run: what torch does with a tensor would show in the trace.
            self._received.append((pack(receives, self._stage, microbatch, self._pipe), value))
        self._host.sleep(self._takes[kind, microbatch])

    def wrong_messages(self) -> list[Action]:
        """The receives of the last step that brought another transfer's message."""
        return [Action.from_code(code) for code, value in self._received if int(_identity(value)[0]) != code]

    @property
    def received(self) -> int:
        """Messages taken in the last step."""
        return len(self._received)

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        self._act(Kind.F, Kind.RECV_F, microbatch, value)
        return None if self._last else self._outputs[microbatch]

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        self._act(Kind.B, Kind.RECV_B, microbatch, gradient)
        return None if self._first else self._gradients[microbatch]

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        self._act(Kind.I, Kind.RECV_B, microbatch, gradient)
        return None if self._first else self._gradients[microbatch]

    def backward_weight(self, microbatch: int) -> None:
        """See `Stage`."""
        self._host.sleep(self._takes[Kind.W, microbatch])

    def run_part(
        self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None
    ) -> torch.Tensor | None:
        """See `PartStage`."""
        return through(self._host.exchange, self.part(kind, layer, part, microbatch, value))

    def all_to_alls(self, kind: Kind, part: Part) -> int:  # noqa: ARG002 - forward and backward are alike
        """See `OfferingStage`."""
        return 1 if part in ALL_TO_ALL_PARTS else 0

    def part(self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None) -> Offering:
        """See `OfferingStage`: all-to-alls bring one number to every replica, and take their time from then on."""
        code = Action(kind, self._stage, microbatch, self._pipe, layer, part).code
        if value is not None:
            self._received.append(
                (pack(Kind.RECV_F if kind is Kind.F else Kind.RECV_B, self._stage, microbatch, self._pipe), value)
            )
        if part in ALL_TO_ALL_PARTS:
            ones = [1] * self._host.exchange.replicas
            yield Offer(self._row, ones, ones)
        self._host.sleep(_scattered(code, int(self._layer.table[kind, part]), self._jitter))
        if kind is Kind.F and part is Part.COMBINE and layer == self._layers - 1 and not self._last:
            return self._outputs[microbatch]
        if kind in (Kind.B, Kind.I) and part is Part.ATTN and layer == 0 and not self._first:
            return self._gradients[microbatch]
        return None

    def gradients(self) -> list[torch.Tensor]:
        """See `Stage`: there are none."""
        return []

    def expert_gradients(self) -> list[torch.Tensor]:
        """See `Stage`: there are none."""
        return []


def _scattered(code: int, ns: int, jitter: Jitter | None) -> int:
    """ns of an action, with its jitter."""
    return ns if jitter is None else int(jitter.applied(np.array([code]), np.array([ns]))[0])


def _identity(message: torch.Tensor) -> IntArray:
    """The first bytes of a message as one integer, shape (1,); a view."""
    identity: IntArray = message[:MIN_MESSAGE].cpu().numpy().view(np.int64)
    return identity


class SleepWorkload:
    """See the module."""

    def __init__(self, schedule: Schedule, config: RunConfig, host: Host = _HERE) -> None:
        self._schedule, self._config, self._host = schedule, config, host

    def stage(self, pipe: int, stage: int) -> SleepStage:
        """See `Workload`."""
        schedule, config = self._schedule, self._config
        return SleepStage(
            stage,
            schedule.stages,
            pipe,
            schedule.microbatches,
            config.costs.of(stage),
            config.message_bytes,
            self._host,
            config.costs.jitter,
            config.costs.layer_of(stage),
            int(schedule.chain.layers[stage]),
        )

    def buffer(self, receive: Action) -> torch.Tensor:  # noqa: ARG002 - all messages are alike
        """See `Workload`."""
        return torch.zeros(self._config.message_bytes, dtype=torch.uint8, device=self._host.device)

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:  # noqa: ARG002
        """See `Workload`: whether every message of the last step was the one that its action waits for."""
        received, wrong = 0, []
        for stage in stages_of(SleepStage, stages).values():
            received += stage.received
            wrong += stage.wrong_messages()
        expected = sum(half.takes != 0 for op in program.ops for half in op.halves)
        bad = len(wrong) + abs(expected - received)
        return RankCheck(
            program.rank,
            compared=expected,
            max_abs_error=float(bad),
            max_rel_error=bad / expected if expected else 0.0,
            bit_equal=not bad,
            worst=f"wrong message for {wrong[0]}" if wrong else "",
        )


def build(schedule: Schedule, config: RunConfig, host: Host) -> SleepWorkload:
    """The workload that `--workload sleep` runs."""
    return SleepWorkload(schedule, config, host)
