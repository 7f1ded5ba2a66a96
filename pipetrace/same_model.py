"""Costs of one model, cut into other stages.

`compare` is told what a rank of the plain pipeline costs: p stages, one a rank. A schedule with n stages cuts the same
model into n pieces, so each costs p/n of that, and where the plain pipeline's stages differ, what it covers of them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

from pipetrace.costs import Costs, PairCost, RunCosts, StageCosts
from pipetrace.errors import CostError


def cut(costs: Costs, ranks: int, stages: int) -> Costs:
    """The costs of a model whose plain pipeline on `ranks` ranks costs `costs`, cut into `stages` stages.

    Transfers stay as they are: an activation is as large wherever the model is cut. Times are rounded to the ns. A
    layer costs what it did; how many a stage then has, the caller knows.

    Raises:
        CostError: Pairs of single stages have costs, or layers, and the model is to be cut into stages that are none of
            these, or in which layers of two meet.
    """
    if stages == ranks:
        return costs
    if costs.pairs:
        first = "-".join(map(str, min(costs.pairs)))
        raise CostError(
            f"the costs name the pair {first}, and {stages} stages are others than the {ranks} of the plain pipeline",
            "leave pairs out of the costs, or give --costs-per chunk",
        )
    size = Fraction(ranks, stages)
    of_each, meet = divmod(stages, ranks)
    if costs.stage_layers and meet:
        raise CostError(
            f"layers of single stages have costs, and {stages} stages are no whole number for each of {ranks} ranks",
            "leave parts.stages out of the costs, or give --costs-per chunk",
        )
    pair: PairCost | RunCosts | None = costs.pair
    if isinstance(pair, PairCost):
        pair = _scaled(pair, size)
    elif pair is not None:
        pair = RunCosts(*(_scaled(getattr(pair, field.name), size) for field in fields(RunCosts)))
    return replace(
        costs,
        default=_sum([(size, costs.default)]),
        stages={stage: _sum(_covered(costs, stage, size, ranks)) for stage in range(stages)} if costs.stages else {},
        pair=pair,
        stage_layers={stage: costs.layer_of(stage // of_each) for stage in range(stages)} if costs.stage_layers else {},
    )


def _scaled(pair: PairCost, size: Fraction) -> PairCost:
    return PairCost(*(round(getattr(pair, field.name) * size) for field in fields(PairCost)))


def _covered(costs: Costs, stage: int, size: Fraction, ranks: int) -> list[tuple[Fraction, StageCosts]]:
    """How much of which plain stage lies in a stage; the model is laid along a line, a plain stage being 1 long."""
    begin, end = stage * size, (stage + 1) * size
    covered = []
    for plain in range(int(begin), min(ranks, -int(-end // 1))):
        left, right = max(begin, Fraction(plain)), min(end, Fraction(plain + 1))
        covered.append((right - left, costs.of(plain)))
    return covered


def _sum(parts: list[tuple[Fraction, StageCosts]]) -> StageCosts:
    def total(name: str) -> int:
        return round(sum((share * getattr(of, name) for share, of in parts), Fraction()))

    values = {field.name: total(field.name) for field in fields(StageCosts) if field.name != "B"}
    return StageCosts(**values, B=None if all(of.B is None for _, of in parts) else total("full_backward"))
