"""A stage of mixture-of-experts layers, run whole or part by part.

Attention and experts are pieces with a graph of their own. Between them rows move from replica to replica, which is
linear: its backward is the way back. So nothing that waits for another rank is part of any graph, a split backward does
all-to-alls in I alone, and each part can be run when a schedule says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from pipetrace.action import ALL_TO_ALL_PARTS, Kind, Part
from pipetrace.execute.expert_parallel import Offer, Offering, through
from pipetrace.execute.stages.piece import Piece, summed_gradients, trainable
from pipetrace.execute.workloads.base import Host
from pipetrace.execute.workloads.moe_layers import MoeLayer, Route, combined, combined_gradient, run_experts

FORWARD = (Part.ATTN, Part.DISPATCH, Part.MLP, Part.COMBINE)
"""The parts of a layer in the order of its forward; a backward goes the other way."""


@dataclass(slots=True)
class _Flow:
    """What a microbatch has on its way through a layer.

    Args:
        route: Where its own rows go.
        counts: For each replica the rows that came from there, for each of this replica's experts.
        beside: What goes past the experts: h, or its gradient.
        rows: What goes through them: rows, outputs or their gradients.
    """

    route: Route
    counts: tuple[tuple[int, ...], ...] = ()
    beside: torch.Tensor | None = None
    rows: torch.Tensor | None = None


@dataclass(slots=True)
class _LayerState:
    layer: MoeLayer
    attention: Piece
    experts: Piece
    flows: dict[int, _Flow] = field(default_factory=dict)


class MoeStage:
    """See the module. Where it holds the model's first stage it has an inlet, where its last, a head.

    Args:
        layers: At least one.
        host: Where it runs, and the replica that it belongs to.
        padded: Whether every expert is given the same number of rows by every replica, so that nobody need be asked.
        inlet: Input of a microbatch → (batch, sequence, hidden).
        inputs: Microbatch → what the inlet takes.
        head: The last layer's output → what the loss takes.
        loss: (output, microbatch) → scalar.
    """

    def __init__(
        self,
        layers: Sequence[MoeLayer],
        host: Host,
        *,
        padded: bool,
        inlet: nn.Module | None = None,
        inputs: Callable[[int], torch.Tensor] | None = None,
        head: nn.Module | None = None,
        loss: Callable[[torch.Tensor, int], torch.Tensor] | None = None,
    ) -> None:
        self._host, self._exchange, self._padded = host, host.exchange, padded
        self._inlet, self._inputs, self._head, self._loss = inlet, inputs, head, loss
        self._layers = [
            _LayerState(
                layer,
                Piece(trainable(layer.attention)),
                Piece([weight for expert in layer.experts for weight in trainable(expert)]),
            )
            for layer in layers
        ]
        self._head_piece = Piece([] if head is None else trainable(head), host.use)
        self._values: dict[int, torch.Tensor] = {}
        self._entered: dict[int, torch.Tensor] = {}
        self.losses: dict[int, torch.Tensor] = {}

    @property
    def layers(self) -> list[MoeLayer]:
        """Its layers."""
        return [state.layer for state in self._layers]

    @property
    def inlet(self) -> nn.Module | None:
        """What makes its input, on the first stage."""
        return self._inlet

    @property
    def head(self) -> nn.Module | None:
        """What its output goes through, on the last stage."""
        return self._head

    @property
    def is_last(self) -> bool:
        """Whether it has a head and a loss."""
        return self._head is not None

    def _shared(self) -> list[nn.Module]:
        ends = [module for module in (self._inlet, self._head) if module is not None]
        return [*ends, *(state.layer.attention for state in self._layers)]

    def begin_step(self) -> None:
        """See `Stage`."""
        for state in self._layers:
            state.attention.clear()
            state.experts.clear()
            state.flows.clear()
        self._head_piece.clear()
        for kept in (self._values, self._entered, self.losses):
            kept.clear()
        for module in [*self._shared(), *(expert for state in self._layers for expert in state.layer.experts)]:
            for weight in module.parameters():
                weight.grad = None

    def gradients(self) -> list[torch.Tensor]:
        """See `Stage`."""
        return summed_gradients([weight for module in self._shared() for weight in trainable(module)])

    def expert_gradients(self) -> list[torch.Tensor]:
        """See `Stage`."""
        experts = [expert for state in self._layers for expert in state.layer.experts]
        return summed_gradients([weight for expert in experts for weight in trainable(expert)])

    # A stage run whole is its parts, one after the other.

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        for layer in range(len(self._layers)):
            for part in FORWARD:
                value = self.run_part(Kind.F, layer, part, microbatch, value)
        return value

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        return self._backward(Kind.B, microbatch, gradient)

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """See `Stage`."""
        return self._backward(Kind.I, microbatch, gradient)

    def _backward(self, kind: Kind, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        for layer in reversed(range(len(self._layers))):
            for part in reversed(FORWARD):
                value = self.run_part(kind, layer, part, microbatch, value)
        return value

    def backward_weight(self, microbatch: int) -> None:
        """See `Stage`."""
        for layer in reversed(range(len(self._layers))):
            self.run_part(Kind.W, layer, Part.MLP, microbatch, None)
            self.run_part(Kind.W, layer, Part.ATTN, microbatch, None)

    def run_part(
        self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None
    ) -> torch.Tensor | None:
        """See `PartStage`."""
        return through(self._exchange, self.part(kind, layer, part, microbatch, value))

    def all_to_alls(self, kind: Kind, part: Part) -> int:
        """See `OfferingStage`: a dispatch first asks how many rows will come, where it cannot know."""
        if part not in ALL_TO_ALL_PARTS:
            return 0
        return 2 if kind is Kind.F and part is Part.DISPATCH and not self._padded else 1

    def part(self, kind: Kind, layer: int, part: Part, microbatch: int, value: torch.Tensor | None) -> Offering:
        """See `OfferingStage`."""
        state, last = self._layers[layer], layer == len(self._layers) - 1
        match part:
            case Part.ATTN:
                return self._attention(kind, state, layer == 0, microbatch, value)
            case Part.DISPATCH:
                yield from self._dispatch(kind, state, microbatch)
            case Part.MLP:
                self._experts(kind, state, last, microbatch)
            case Part.COMBINE if kind is Kind.F:
                return (yield from self._combine(state, last, microbatch))
            case Part.COMBINE:
                yield from self._combine_back(state, last, microbatch, value)
        return None

    def _attention(
        self, kind: Kind, state: _LayerState, first: bool, microbatch: int, value: torch.Tensor | None
    ) -> torch.Tensor | None:
        if kind is Kind.F:
            self._attend(state, microbatch, self._enter(microbatch, value) if first else self._take(microbatch))
        elif kind is Kind.W:
            state.attention.backward_weight(microbatch)
            if first and self._inlet is not None:
                self._into_inlet(microbatch)
        else:
            flow = state.flows.pop(microbatch)
            run = state.attention.backward if kind is Kind.B else state.attention.backward_input
            gradient = run(microbatch, [self._there(flow.beside), self._there(flow.rows)])
            if first and self._inlet is None:
                return gradient.contiguous()
            self._values[microbatch] = gradient
            if first and kind is Kind.B:
                self._into_inlet(microbatch)
        return None

    def _dispatch(self, kind: Kind, state: _LayerState, microbatch: int) -> Offering:
        flow = state.flows[microbatch]
        rows = self._there(flow.rows)
        if kind is Kind.F:
            flow.counts = yield from self._ask(flow.route, rows.device)
            flow.rows = yield self._to_experts(flow, rows)
        else:
            flow.rows = yield self._from_experts(flow, rows)
        return None

    def _experts(self, kind: Kind, state: _LayerState, last: bool, microbatch: int) -> None:
        if kind is Kind.F:
            flow, experts = state.flows[microbatch], state.layer.experts
            (flow.rows,) = state.experts.forward(
                microbatch, self._there(flow.rows), lambda rows: [run_experts(experts, rows, flow.counts)]
            )
        elif kind is Kind.W:
            state.experts.backward_weight(microbatch)
        else:
            flow = state.flows[microbatch]
            run = state.experts.backward if kind is Kind.B else state.experts.backward_input
            flow.rows = run(microbatch, [self._there(flow.rows)])
        if last and self._head is not None and kind in (Kind.B, Kind.W):
            self._head_piece.backward_weight(microbatch)

    def _combine(self, state: _LayerState, last: bool, microbatch: int) -> Offering:
        flow = state.flows[microbatch]
        returned = yield self._from_experts(flow, self._there(flow.rows))
        output = combined(self._there(flow.beside), returned, flow.route)
        flow.beside = flow.rows = None
        if last:
            return self._leave(microbatch, output)
        self._values[microbatch] = output
        return None

    def _combine_back(self, state: _LayerState, last: bool, microbatch: int, value: torch.Tensor | None) -> Offering:
        flow = state.flows[microbatch]
        gradient = self._begin_backward(microbatch, value) if last else self._take(microbatch)
        flow.beside = gradient
        flow.rows = yield self._to_experts(flow, combined_gradient(gradient, flow.route))
        return None

    def _take(self, microbatch: int) -> torch.Tensor:
        return self._there(self._values.pop(microbatch))

    def _there(self, value: torch.Tensor | None) -> torch.Tensor:
        """What another part has made, perhaps on the other lane."""
        if value is None:
            raise ValueError("a part stands before what it takes")
        self._host.use(value)
        return value

    def _enter(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor:
        if self._inlet is None or self._inputs is None:
            return self._there(value)
        entered: torch.Tensor = self._inlet(self._inputs(microbatch))
        self._entered[microbatch] = entered
        return entered

    def _attend(self, state: _LayerState, microbatch: int, value: torch.Tensor) -> None:
        def attend(x: torch.Tensor) -> Sequence[torch.Tensor]:
            h, rows, of = state.layer.attention(x)
            state.flows[microbatch] = _Flow(of)
            return h, rows

        beside, rows = state.attention.forward(microbatch, value, attend)
        flow = state.flows[microbatch]
        flow.beside, flow.rows = beside, rows

    def _ask(self, of: Route, device: torch.device) -> Generator[Offer, torch.Tensor, tuple[tuple[int, ...], ...]]:
        """How many rows come from each replica for each expert here."""
        replicas = self._exchange.replicas
        own = len(of.counts) // replicas
        if self._padded:
            return (of.counts[:own],) * replicas
        asked = yield Offer(torch.tensor(of.counts, device=device).view(-1, 1), [own] * replicas, [own] * replicas)
        return tuple(tuple(each) for each in asked.view(replicas, own).tolist())

    def _sent(self, flow: _Flow) -> list[int]:
        own = len(flow.route.counts) // self._exchange.replicas
        counts = flow.route.counts
        return [sum(counts[at : at + own]) for at in range(0, len(counts), own)]

    def _to_experts(self, flow: _Flow, rows: torch.Tensor) -> Offer:
        return Offer(rows, self._sent(flow), [sum(each) for each in flow.counts])

    def _from_experts(self, flow: _Flow, rows: torch.Tensor) -> Offer:
        return Offer(rows, [sum(each) for each in flow.counts], self._sent(flow))

    def _leave(self, microbatch: int, output: torch.Tensor) -> torch.Tensor | None:
        head, loss = self._head, self._loss
        if head is None or loss is None:
            return output
        (self.losses[microbatch],) = self._head_piece.forward(
            microbatch, output, lambda value: [loss(head(value), microbatch)]
        )
        return None

    def _begin_backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor:
        if self._head is None:
            return self._there(gradient)
        return self._head_piece.backward_input(microbatch, [None])

    def _into_inlet(self, microbatch: int) -> None:
        torch.autograd.backward(self._entered.pop(microbatch), self._take(microbatch))
