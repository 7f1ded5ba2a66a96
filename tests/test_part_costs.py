from __future__ import annotations

import pytest

from pipetrace.action import Kind, Part
from pipetrace.costs import Costs
from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import Overlap, expand_moe
from pipetrace.schedules import build


def test_a_part_costs_1_ms_unless_told_otherwise() -> None:
    layer = LayerCosts()
    assert [layer.total(kind) for kind in (Kind.F, Kind.I, Kind.W, Kind.B)] == [
        4_000_000,
        4_000_000,
        2_000_000,
        6_000_000,
    ]
    assert LayerCosts(mlp=PartCosts(1, 2, 3)).table[Kind.B, Part.MLP] == 5


def test_what_cannot_be() -> None:
    with pytest.raises(CostError, match="I of a part costs -1 ns"):
        PartCosts(I=-1)
    with pytest.raises(CostError, match="combine has no weights"):
        LayerCosts(combine=PartCosts(W=1))


def test_a_stage_can_have_its_own() -> None:
    schedule = expand_moe(build("zb-h1", 2, 2), Overlap(layers=2))
    own = LayerCosts(attn=PartCosts(7, 8, 9))
    durations = Costs(stage_layers={1: own}).durations(schedule)
    by_action = dict(zip(schedule.code.tolist(), durations.tolist(), strict=True))
    assert {time for code, time in by_action.items() if code >> 38 & 1 and code >> 5 & 7 == Part.ATTN} == {7, 8, 9}
    assert {time for code, time in by_action.items() if not code >> 38 & 1} == {1_000_000}
    with pytest.raises(CostError, match="the costs name stage 5"):
        Costs(stage_layers={5: own}).durations(schedule)
