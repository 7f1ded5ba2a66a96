"""What a pair takes in a long run of pairs, and how much all-to-all it hides: where each order stops helping."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipetrace.action import ALL_TO_ALL_PARTS, Kind, Part
from pipetrace.costs import Costs
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes.overlap_orders import Overlap
from pipetrace.passes.stage_costs import stage_costs

_STEPS = 1000  # a ratio is told to a thousandth


@dataclass(frozen=True, slots=True)
class SteadyPair:
    """A pair among pairs whose inputs are all there, in ns.

    Args:
        period: From one pair to the next.
        compute, all_to_all: What each lane does for a pair; neither is longer than the period.
    """

    period: int
    compute: int
    all_to_all: int

    @property
    def ratio(self) -> float:
        """All-to-all time over compute time; 0 where nothing is computed."""
        return self.all_to_all / self.compute if self.compute else 0.0

    @property
    def exposed(self) -> int:
        """ns by which the period is longer than the compute: what all-to-alls cost."""
        return self.period - self.compute


def steady_pair(layer: LayerCosts, overlap: Overlap) -> SteadyPair:
    """The steady pair of stages with such layers, in an order."""
    pair = stage_costs(Costs(layer=layer), overlap).pair
    travels = sum(layer.of(part).F + layer.of(part).I for part in ALL_TO_ALL_PARTS)
    whole = layer.total(Kind.F) + layer.total(Kind.B)
    assert pair is not None
    return SteadyPair(pair.duration, overlap.layers * (whole - travels), overlap.layers * travels)


def with_ratio(layer: LayerCosts, ratio: float) -> LayerCosts:
    """The layer with its all-to-alls scaled together, so that they take `ratio` of the compute of a pair.

    Where they cost nothing all four are made equal.
    """
    travels = sum(layer.of(part).F + layer.of(part).I for part in ALL_TO_ALL_PARTS)
    compute = layer.total(Kind.F) + layer.total(Kind.B) - travels
    if not travels:
        each = round(ratio * compute / 4)
        return replace(layer, dispatch=PartCosts(each, each), combine=PartCosts(each, each))
    scale = ratio * compute / travels
    dispatch, combine = (
        PartCosts(round(part.F * scale), round(part.I * scale)) for part in (layer.dispatch, layer.combine)
    )
    return replace(layer, dispatch=dispatch, combine=combine)


def with_weight_share(layer: LayerCosts, share: float) -> LayerCosts:
    """The layer whose backward takes as long as before, `share` of it in the weight gradients of attention and mlp."""
    parts = {}
    for part in (Part.ATTN, Part.MLP):
        of = layer.of(part)
        weight = round(share * (of.I + of.W))
        parts[part] = PartCosts(of.F, of.I + of.W - weight, weight)
    return replace(layer, attn=parts[Part.ATTN], mlp=parts[Part.MLP])


def hides_up_to(layer: LayerCosts, overlap: Overlap) -> float:
    """The highest ratio of all-to-all to compute time at which a steady pair still takes its compute alone.

    The all-to-alls are scaled together. To a thousandth, rounded down; 1 is the most that any order can reach, since
    at more the all-to-all lane has more to do than the compute lane.
    """
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high + 1) // 2
        if steady_pair(with_ratio(layer, middle / _STEPS), overlap).exposed <= 0:
            low = middle
        else:
            high = middle - 1
    return low / _STEPS
