"""In which order the parts of a pair of microbatches are issued: the one idea in which MoE overlap schemes differ.

A stage's forward runs attention, dispatch, mlp, combine in each of its layers; its backward combine, mlp, dispatch,
attention, from the last layer to the first. A pair has one of each, microbatch i going forward through layer f and
microbatch j coming back through layer b. Written as what the two lanes run:

=========  =======================================================  ==========================================
order      compute lane                                             all-to-all lane
=========  =======================================================  ==========================================
serial     attnF(f) mlpF(f) of all layers, then mlpB(b) attnB(b)     dispF combF, then combB dispB
aligned    attnF(f) mlpB(b) mlpF(f) attnB(b)                         combB(b) dispF(f) dispB(b) combF(f)
megatron   attnF(f) mlpI(b) mlpW(b) mlpF(f) attnI(b) attnW(b)        combB(b) dispF(f) dispB(b) combF(f)
dualpipe   mlpI(b) mlpF(f) mlpW(b) attnI(b) attnW(b) attnF(f+1)      dispF(f) dispB(b) combF(f) combB(b-1)
=========  =======================================================  ==========================================

megatron is that of Megatron-LM's combined 1F1B (`overlap_moe_expert_parallel_comm`), dualpipe the one of DeepSeek-V3
(DeepSeek-AI 2024, arXiv:2412.19437, figure 4), in which f+1 and b-1 of a stage's last block are those of the next pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pipetrace.action import MAX_LAYER, Kind, Part
from pipetrace.errors import ScheduleError
from pipetrace.shown import shown
from pipetrace.times import is_count


class MoeOrder(StrEnum):
    """How the parts of a pair are issued; see the module."""

    SERIAL = "serial"
    ALIGNED = "aligned"
    MEGATRON = "megatron"
    DUALPIPE = "dualpipe"


class After(StrEnum):
    """Behind which part of a pair a weight gradient runs: the next such part, its own I included."""

    ATTN_F = "attn.F"
    MLP_F = "mlp.F"
    ATTN_I = "attn.I"
    MLP_I = "mlp.I"
    END = "end"
    """Behind all layers."""


_SPLITS = (MoeOrder.MEGATRON, MoeOrder.DUALPIPE)
_OWN = {Part.MLP: After.MLP_I, Part.ATTN: After.ATTN_I}
_ANCHOR = {
    (Kind.F, Part.ATTN): After.ATTN_F,
    (Kind.F, Part.MLP): After.MLP_F,
    (Kind.I, Part.ATTN): After.ATTN_I,
    (Kind.I, Part.MLP): After.MLP_I,
}


class Item(NamedTuple):
    """One part of a tile. Whether it is of the forward's or of the backward's microbatch, its kind tells."""

    kind: Kind
    layer: int
    part: Part


@dataclass(frozen=True, slots=True)
class Overlap:
    """How the tiles of a schedule are run in parts.

    Args:
        order: Of the parts of a pair; its text will do, as for the two below.
        layers: MoE layers of a stage.
        split: Whether megatron and dualpipe split the full backward of a pair into I and W; serial and aligned never
            do, and a backward that stands alone stays whole in every order.
        mlp_weight: Where the W of the experts runs in a pair whose backward is split; the order's own place when None.
        attn_weight: The same for that of attention.

    Raises:
        ScheduleError: An order or place is unknown, there is no layer or there are too many, or a place is given where
            nothing is split.
    """

    order: MoeOrder = MoeOrder.DUALPIPE
    layers: int = 1
    split: bool = True
    mlp_weight: After | None = None
    attn_weight: After | None = None

    def __post_init__(self) -> None:
        for name, known in (("order", MoeOrder), ("mlp_weight", After), ("attn_weight", After)):
            value = getattr(self, name)
            if value is None and known is After:
                continue
            if value not in tuple(known):
                raise ScheduleError(f"unknown {name} of an overlap {shown(value)}", f"they are {', '.join(known)}")
            object.__setattr__(self, name, known(value))  # everything else compares with `is`
        if not is_count(self.layers, MAX_LAYER + 1) or not self.layers:
            raise ScheduleError(f"stages of {shown(self.layers)} layers", f"give between 1 and {MAX_LAYER + 1}")
        if (self.mlp_weight or self.attn_weight) and not self.splits:
            raise ScheduleError(
                f"where W runs is given, but {self.order} with a full backward has none",
                f"orders that split it are {' and '.join(_SPLITS)}",
            )

    @property
    def splits(self) -> bool:
        """Whether a full backward becomes I and W."""
        return self.split and self.order in _SPLITS

    @property
    def hoists(self) -> bool:
        """Whether a pair begins under the one before."""
        return self.order is MoeOrder.DUALPIPE

    def items(self, forward: bool, backward: Kind | None) -> list[Item]:
        """The parts of a tile, in the order in which they are issued; an all-to-all directly behind what it sends.

        Args:
            forward: Whether the tile has a forward.
            backward: The kind of its backward, or of the W that it is; None where it is a forward alone.
        """
        if backward is Kind.W:
            return [Item(Kind.W, layer, part) for layer in self._upward() for part in (Part.MLP, Part.ATTN)]
        if backward is None:
            return self._forward()
        if not forward or self.order is MoeOrder.SERIAL:
            return (self._forward() if forward else []) + self._backward(backward)
        splits = backward is Kind.B and self.splits
        back = Kind.I if splits else backward
        items = [item for layer in range(self.layers) for item in self._block(layer, back)]
        if self.hoists:
            items = [Item(back, self.layers - 1, Part.COMBINE), Item(Kind.F, 0, Part.ATTN), *items]
        return list(self._with_weights(items)) if splits else items

    def _upward(self) -> range:
        return range(self.layers - 1, -1, -1)

    def _forward(self) -> list[Item]:
        return [Item(Kind.F, layer, part) for layer in range(self.layers) for part in Part]

    def _backward(self, kind: Kind) -> list[Item]:
        return [Item(kind, layer, part) for layer in self._upward() for part in reversed(Part)]

    def _block(self, layer: int, back: Kind) -> Iterator[Item]:
        """What overlaps while the forward is in a layer, and the backward as far from the last."""
        F, B, f, b = Kind.F, back, layer, self.layers - 1 - layer
        if not self.hoists:
            yield Item(B, b, Part.COMBINE)
            yield Item(F, f, Part.ATTN)
            yield Item(F, f, Part.DISPATCH)
            yield Item(B, b, Part.MLP)
            yield Item(B, b, Part.DISPATCH)
            yield Item(F, f, Part.MLP)
            yield Item(F, f, Part.COMBINE)
            yield Item(B, b, Part.ATTN)
            return
        yield Item(F, f, Part.DISPATCH)
        yield Item(B, b, Part.MLP)
        yield Item(B, b, Part.DISPATCH)
        yield Item(F, f, Part.MLP)
        yield Item(F, f, Part.COMBINE)
        yield Item(B, b, Part.ATTN)
        if b:
            yield Item(B, b - 1, Part.COMBINE)
            yield Item(F, f + 1, Part.ATTN)

    def _with_weights(self, items: Sequence[Item]) -> Iterator[Item]:
        """Adds every W behind its place, but not between that and the all-to-all that is issued there."""
        places = dict(_OWN)
        if self.hoists:
            places[Part.MLP] = After.MLP_F
        wanted = ((Part.MLP, self.mlp_weight), (Part.ATTN, self.attn_weight))
        places |= {part: given for part, given in wanted if given is not None}
        waiting: list[Item] = []
        behind: After | None = None
        for item in items:
            if item.part in _OWN:
                for weight in [w for w in waiting if places[w.part] is behind]:
                    waiting.remove(weight)
                    yield weight
                behind = _ANCHOR[item.kind, item.part]
                if item.kind is Kind.I:
                    waiting.append(Item(Kind.W, item.layer, item.part))
            yield item
        # At the end those that had their place in time come first.
        yield from sorted(waiting, key=lambda weight: places[weight.part] is not behind)
