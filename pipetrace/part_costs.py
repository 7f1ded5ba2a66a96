"""What the parts of an MoE layer cost, in integer nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from pipetrace.action import ALL_TO_ALL_PARTS, IntArray, Kind, Part
from pipetrace.errors import CostError
from pipetrace.shown import shown
from pipetrace.times import MAX_COST, UNITS, is_count

_UNIT = UNITS["ms"]  # what a part costs of which nothing is said


@dataclass(frozen=True, slots=True)
class PartCosts:
    """Costs of one part of one layer for one microbatch, in ns.

    Args:
        F: Forward.
        I: Input gradient; for an all-to-all the one that goes the other way.
        W: Weight gradient; 0 for an all-to-all, which has none. A full backward takes I + W.

    Raises:
        CostError: A cost is negative, over 1,000 s, or no whole number.
    """

    F: int = _UNIT
    I: int = _UNIT  # noqa: E741 - the field's own letter
    W: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not is_count(value, MAX_COST):
                raise CostError(f"{name} of a part costs {shown(value)} ns", "give a time between 0 and 1000 s")


_UNIT_COMPUTE = PartCosts(W=_UNIT)
_UNIT_ALL_TO_ALL = PartCosts()


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Costs of an MoE layer's parts.

    Args:
        attn: Attention, and all else that is computed outside the experts: norms, router.
        dispatch: The all-to-all that brings tokens to their experts.
        mlp: The experts.
        combine: The all-to-all that brings tokens back.

    Raises:
        CostError: An all-to-all has a W.
    """

    attn: PartCosts = _UNIT_COMPUTE
    dispatch: PartCosts = _UNIT_ALL_TO_ALL
    mlp: PartCosts = _UNIT_COMPUTE
    combine: PartCosts = _UNIT_ALL_TO_ALL

    def __post_init__(self) -> None:
        for part in ALL_TO_ALL_PARTS:
            if self.of(part).W:
                raise CostError(f"{part.name.lower()} has no weights, so its W costs nothing", "leave it out")

    def of(self, part: Part) -> PartCosts:
        """Costs of one part."""
        costs: PartCosts = getattr(self, part.name.lower())
        return costs

    @property
    def table(self) -> IntArray:
        """ns by kind (F, B, I, W) and part; shape (kinds, parts), indexed by the values of `Kind` and `Part`."""
        table = np.zeros((Kind.W + 1, Part.COMBINE + 1), dtype=np.int64)
        for part in Part:
            of = self.of(part)
            table[Kind.F, part], table[Kind.I, part], table[Kind.W, part] = of.F, of.I, of.W
            table[Kind.B, part] = of.I + of.W
        return table

    def total(self, kind: Kind) -> int:
        """ns of all parts of one kind together."""
        return int(self.table[kind].sum())

    def whole(self, layers: int) -> dict[str, int]:
        """ns of F, B, I and W of a stage of so many such layers that stands alone: the sum of its parts."""
        return {kind.name: layers * self.total(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)}


PART_NAMES: Mapping[str, Part] = {field.name: Part[field.name.upper()] for field in fields(LayerCosts)}
