"""The `moe` model in a single process: all experts, the tokens of all replicas, one autograd graph a microbatch.

A microbatch here is that of all replicas at once, as an expert sees the tokens of all. Each replica has weights of its
own beside the experts, so that gradients are added up as they are in a run: over the microbatches, then the replicas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn

from pipetrace.action import Action, Kind, Part
from pipetrace.execute.check import Tally, added
from pipetrace.execute.expert_parallel import Exchange
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.moe_stage import MoeStage
from pipetrace.execute.workloads.moe_layers import MoeLayer, combined

if TYPE_CHECKING:
    from pipetrace.execute.workloads.moe import MoeWorkload

WeightsOf: TypeAlias = tuple[int, int, Part]
"""(stage, layer, attn or mlp): weights whose gradients are added up together, in the order of their W."""


@dataclass(frozen=True, slots=True)
class ReferenceStage:
    """The modules of a stage.

    Args:
        layers: With all experts.
        inlet: On the first stage.
        head: On the last.
    """

    layers: Sequence[MoeLayer]
    inlet: nn.Module | None
    head: nn.Module | None


def orders_of(actions: Iterable[Action], layers: int) -> dict[int, dict[WeightsOf, tuple[int, ...]]]:
    """For each pipe and the weights it holds, the order in which microbatches' gradients are added up.

    Args:
        actions: Of all ranks, each in the order in which it ran; of whole stages or of parts.
        layers: In a stage.
    """
    found: dict[int, dict[WeightsOf, list[int]]] = defaultdict(lambda: defaultdict(list))
    for action in actions:
        if action.kind not in (Kind.B, Kind.W) or action.microbatch is None:
            continue
        which = [(action.layer, action.part)]
        if action.layer is None:
            which = [(layer, part) for layer in range(layers) for part in (Part.ATTN, Part.MLP)]
        for layer, part in which:
            if part in (Part.ATTN, Part.MLP) and layer is not None:
                found[action.pipe][action.stage, layer, part].append(action.microbatch)
    return {pipe: {of: tuple(order) for of, order in orders.items()} for pipe, orders in found.items()}


class Reference:
    """The whole model with every replica's share.

    Args:
        workload: Whose modules and tokens.
        stages: Of the model.
        replicas: Expert-parallel ranks.
    """

    def __init__(self, workload: MoeWorkload, stages: int, replicas: int) -> None:
        self._workload = workload
        self.copies = [[workload.modules(stage) for stage in range(stages)]]
        for _ in range(replicas - 1):
            self.copies.append([_with_experts_of(stage) for stage in self.copies[0]])
        self.losses: list[dict[int, torch.Tensor]] = [{} for _ in range(replicas)]

    def run(self, microbatch: int) -> None:
        """Adds one microbatch's gradients and keeps its losses."""
        values: list[torch.Tensor] = []
        for stages in zip(*self.copies, strict=True):
            if stages[0].inlet is not None:
                values = [
                    of.inlet(self._workload.inputs(replica, microbatch))
                    for replica, of in enumerate(stages)
                    if of.inlet is not None
                ]
            for layers in zip(*(of.layers for of in stages), strict=True):
                values = _layer(layers, values)
        made = []
        for replica, (stages_of, value) in enumerate(zip(self.copies, values, strict=True)):
            head = stages_of[-1].head
            if head is None:
                raise ValueError("the last stage has no head")
            made.append(self._workload.loss(head(value), self._workload.targets(replica, microbatch)))
            self.losses[replica][microbatch] = made[-1].detach()
        torch.autograd.backward(made)

    def weights(self, of: WeightsOf, stages: int) -> list[list[tuple[str, nn.Parameter]]]:
        """The weights that every replica has alike, with names, a list for each replica."""
        return [_shared_weights(copy[of[0]], of, first=of[0] == 0, last=of[0] == stages - 1) for copy in self.copies]


def _with_experts_of(stage: ReferenceStage) -> ReferenceStage:
    """A copy but for the experts, which are the same modules."""
    layers = [MoeLayer(deepcopy(layer.attention), layer.experts) for layer in stage.layers]
    return ReferenceStage(layers, deepcopy(stage.inlet), deepcopy(stage.head))


def _layer(layers: Sequence[MoeLayer], values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One layer for all replicas at once."""
    attended = [layer.attention(value) for layer, value in zip(layers, values, strict=True)]
    shares = [rows.split(of.counts) for _, rows, of in attended]
    outputs: list[list[torch.Tensor]] = [[] for _ in layers]
    for number, expert in enumerate(layers[0].experts):
        taken = [share[number] for share in shares]
        made = expert(torch.cat(taken)).split([len(rows) for rows in taken])
        for replica, rows in enumerate(made):
            outputs[replica].append(rows)
    return [combined(h, torch.cat(rows), of) for (h, _, of), rows in zip(attended, outputs, strict=True)]


def _shared_weights(stage: ReferenceStage, of: WeightsOf, *, first: bool, last: bool) -> list[tuple[str, nn.Parameter]]:
    number, layer, part = of
    named: list[tuple[str, nn.Module | None]] = []
    if part is Part.ATTN:
        named.append((f"layer {layer}", stage.layers[layer].attention))
        if layer == 0 and first:
            named.append(("inlet", stage.inlet))
    elif layer == len(stage.layers) - 1 and last:
        named.append(("head", stage.head))
    return [
        (f"{name} {weight_name} of stage {number}", weight)
        for name, module in named
        if module is not None
        for weight_name, weight in module.named_parameters()
    ]


def compare_with_reference(
    rank: int,
    exchange: Exchange,
    actions: Iterable[Action],
    last: int,
    mine: Mapping[tuple[int, int], MoeStage],
    workload: MoeWorkload,
    tick: Callable[[], None],
) -> RankCheck:
    """Compares what a step left in a rank's stages with the reference.

    Args:
        rank: Global rank.
        exchange: Says which replica this is.
        actions: See `orders_of`.
        last: The model's last stage.
        mine: The rank's stages by (pipe, stage).
        workload: That made them.
        tick: Called after each microbatch of the reference.
    """
    layers = len(next(iter(mine.values())).layers)
    held = {stage for _, stage in mine}
    wanted = {
        (pipe, of): order
        for pipe, orders in orders_of(actions, layers).items()
        for of, order in orders.items()
        if of[0] in held
    }
    shared: dict[tuple[int, WeightsOf], list[list[torch.Tensor | None]]] = {}
    experts: dict[tuple[int, WeightsOf], list[torch.Tensor | None]] = {}
    losses: dict[int, dict[int, torch.Tensor]] = {}
    for order in dict.fromkeys(wanted.values()):
        reference = Reference(workload, last + 1, exchange.replicas)
        for microbatch in order:
            reference.run(microbatch)
            tick()
        for (pipe, of), its in wanted.items():
            if its != order:
                continue
            shared[pipe, of] = [[w.grad for _, w in copy] for copy in reference.weights(of, last + 1)]
            if of[2] is Part.MLP:
                experts[pipe, of] = [w.grad for _, w in _expert_weights(reference.copies[0][of[0]], of, exchange)]
            losses[pipe] = reference.losses[exchange.replica]

    tally = Tally()
    for (pipe, number), stage in mine.items():
        ours = ReferenceStage(stage.layers, stage.inlet, stage.head)
        for of in [of for its_pipe, of in wanted if its_pipe == pipe and of[0] == number]:
            pipes = sorted(other for other, its in wanted if its == of)
            here = _shared_weights(ours, of, first=number == 0, last=number == last)
            for index, (name, weight) in enumerate(here):
                copies = [copy[index] for one in pipes for copy in shared[one, of]]
                tally.gradient(name, weight.grad, added(copies))
            if of[2] is Part.MLP:
                for index, (name, weight) in enumerate(_expert_weights(ours, of, None)):
                    tally.gradient(name, weight.grad, added([experts[one, of][index] for one in pipes]))
        if stage.is_last:
            tally.losses(stage.losses, losses[pipe])
    return tally.result(rank)


def _expert_weights(stage: ReferenceStage, of: WeightsOf, exchange: Exchange | None) -> list[tuple[str, nn.Parameter]]:
    """The weights of a layer's experts: of all that there are, or of one replica's share."""
    experts = stage.layers[of[1]].experts
    if exchange is not None:
        own = len(experts) // exchange.replicas
        experts = experts[exchange.replica * own : (exchange.replica + 1) * own]
    return [
        (f"layer {of[1]} expert {number} {name} of stage {of[0]}", weight)
        for number, expert in enumerate(experts)
        for name, weight in expert.named_parameters()
    ]
