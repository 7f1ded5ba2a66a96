"""A backward in two halves: the input's gradient now (I), the weights' later (W), neither doing the other's work.

Autograd gives the input's gradient alone when asked for that alone. Asked for the weights' alone afterwards, it would
run the whole chain of the first half again, because each weight's gradient starts from a value inside that chain. So
the first half keeps those values:

1. The nodes of the graph that lie on a path from the output to the input are the *chain*. Where an edge leaves the
   chain towards a weight, there is a *cut*: a chain node whose incoming gradient is all that the weight's needs.
2. I runs the chain for the input's gradient. Hooks on the cut nodes keep the gradient that arrives at each.
3. W starts autograd once at each cut, with what was kept, for the weights that hang there. It runs the cut node's
   weight half and what lies between it and the weight, and nothing of the chain.

A weight that hangs at two cuts (one used twice in a stage) cannot be had this way: starting at the upper cut would run
down the chain to the lower. Such weights, and those that do not hang on the chain at all, take a pass of their own from
the output, which is right for every graph and only costs time.

Limits: re-entrant activation checkpointing (`use_reentrant=True`) hides its graph from autograd and is not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

from pipetrace.errors import RunError


@dataclass(slots=True)
class _Cut:
    """A chain node, the weights that hang at it (by index), and the gradient that arrived."""

    node: Node
    weights: list[int]
    arrived: tuple[torch.Tensor | None, ...] = ()

    def keep(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        self.arrived = gradients


@dataclass(slots=True)
class SplitBackward:
    """The backward of a forward's outputs, to be run as `input_gradient`, then `weight_gradients`.

    Args:
        outputs: Of the forward, with their graph.
        inputs: Leaf that the forward started from; requires grad.
        weights: Leaves that require grad.
    """

    outputs: Sequence[torch.Tensor]
    inputs: torch.Tensor
    weights: Sequence[torch.Tensor]
    _gradients: Sequence[torch.Tensor | None] = ()
    _cuts: list[_Cut] = field(default_factory=list)
    _whole: list[int] = field(default_factory=list)
    _half_done: bool = False

    def input_gradient(self, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """I: the gradient of the input.

        Args:
            gradients: Of each output, in its shape; None for a scalar output, a loss.

        Raises:
            RunError: The input requires no grad, so that there is nothing to split.
        """
        if not self.inputs.requires_grad:
            raise RunError(
                "the input of a stage requires no grad, so its backward cannot be split",
                "let the stage start from a leaf that does, as an embedding's output made a leaf",
            )
        self._gradients = gradients
        self._cuts, self._whole = _find_cuts(self.outputs, self.inputs, self.weights)
        hooks = [cut.node.register_prehook(cut.keep) for cut in self._cuts]
        try:
            # The graph stays: W needs what the forward saved in it.
            (result,) = torch.autograd.grad(self.outputs, self.inputs, gradients, retain_graph=True, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
        self._half_done = True
        return torch.zeros_like(self.inputs) if result is None else result

    def weight_gradients(self) -> list[torch.Tensor | None]:
        """W: the gradient of each weight, None where the output does not depend on it. Frees the graph.

        Raises:
            RunError: I has not run.
        """
        if not self._half_done:
            raise RunError("a weight gradient was asked for before its input gradient", "run I before W")
        gradients: list[torch.Tensor | None] = [None] * len(self.weights)
        if self._whole:
            found = torch.autograd.grad(
                self.outputs,
                [self.weights[index] for index in self._whole],
                self._gradients,
                retain_graph=bool(self._cuts),
                allow_unused=True,
            )
            for index, value in zip(self._whole, found, strict=True):
                gradients[index] = value
        for cut in self._cuts:
            edges = [(GradientEdge(cut.node, nr), value) for nr, value in enumerate(cut.arrived) if value is not None]
            if not edges:
                continue
            found = torch.autograd.grad(
                [edge for edge, _ in edges],
                [self.weights[index] for index in cut.weights],
                [value for _, value in edges],
                allow_unused=True,
            )
            for index, value in zip(cut.weights, found, strict=True):
                gradients[index] = value
        self._cuts, self._gradients, self._half_done = [], (), False
        return gradients


def _find_cuts(
    outputs: Sequence[torch.Tensor], inputs: torch.Tensor, weights: Sequence[torch.Tensor]
) -> tuple[list[_Cut], list[int]]:
    """The cuts of a graph, and the weights (by index) that need a pass of their own.

    Runs inside every I, so sets of weights are bits of an integer.
    """
    roots = [output.grad_fn for output in outputs if output.grad_fn is not None]
    hanging = {get_gradient_edge(weight).node: 1 << index for index, weight in enumerate(weights)}
    chain: set[Node] = {get_gradient_edge(inputs).node}
    cuts: list[tuple[Node, int]] = []
    at_one = at_several = 0
    for node in _children_first(roots):
        below, leads_to_input = hanging.get(node, 0), False
        for child, _ in node.next_functions:
            if child in chain:
                leads_to_input = True
            elif child is not None:
                below |= hanging[child]
        if not leads_to_input:
            hanging[node] = below
            continue
        chain.add(node)
        if below:
            at_several |= at_one & below
            at_one |= below
            cuts.append((node, below))
    whole = at_several
    for root in roots:
        whole |= 0 if root in chain else hanging[root]

    def indices(bits: int) -> list[int]:
        return [index for index in range(bits.bit_length()) if bits >> index & 1]

    return [_Cut(node, indices(below & ~whole)) for node, below in cuts if below & ~whole], indices(whole)


def _children_first(roots: Sequence[Node]) -> list[Node]:
    """The nodes that can be reached from `roots`, each after all that it leads to. Deep graphs forbid recursion."""
    order: list[Node] = []
    seen: set[Node] = set()
    above_roots: Iterator[tuple[Node | None, int]] = iter([(root, 0) for root in roots])
    stack: list[tuple[Node | None, Iterator[tuple[Node | None, int]]]] = [(None, above_roots)]
    while stack:
        node, rest = stack[-1]
        for child, _ in rest:
            if child is not None and child not in seen:
                seen.add(child)
                stack.append((child, iter(child.next_functions)))
                break
        else:
            if node is not None:
                order.append(node)
            stack.pop()
    return order
