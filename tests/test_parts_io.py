from __future__ import annotations

import tomllib

import pytest
from hypothesis import given

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_from_dict, costs_to_dict
from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.parts_io import parse_parts, parts_from_dict, parts_to_dict
from pipetrace.passes import MoeOrder, Overlap, stage_costs
from tests.passes.test_expand_moe import MS, layer_costs


def test_what_is_not_named_costs_one() -> None:
    assert parse_parts("") == LayerCosts()
    assert parse_parts("", unit="us").attn == PartCosts(1_000, 1_000, 1_000)
    base = LayerCosts(mlp=PartCosts(1, 2, 3))
    assert parse_parts("attn=2", base=base).mlp == base.mlp


def test_the_more_special_holds() -> None:
    expected = LayerCosts(
        attn=PartCosts(MS, MS, MS // 2),
        dispatch=PartCosts(3 * MS // 2, 2 * MS),
        mlp=PartCosts(2 * MS, 2 * MS, 2 * MS),
        combine=PartCosts(MS // 4, MS // 4),
    )
    texts = "attn.W=0.5", "a2a=1.5", "dispatch.I=2", "mlp=2", "combine=0.25"
    assert parse_parts(",".join(texts)) == parse_parts(", ".join(reversed(texts))) == expected
    # A kind of both all-to-alls is more special than one of them.
    assert parse_parts("combine=3,a2a.F=2").combine == PartCosts(2 * MS, 3 * MS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attn", "cannot read the cost 'attn' of a part"),
        ("gate=1", "cannot read the cost 'gate=1' of a part"),
        ("attn.B=1", "cannot read the cost 'attn.B=1' of a part"),
        ("attn=1,attn=2", "'attn' is given twice"),
        ("attn.F=1,attn.F=1", "'attn.F' is given twice"),
        ("dispatch.W=1", "dispatch has no weights"),
        ("a2a.W=0", "a2a has no weights"),
        ("attn=x", "'x' is no time"),
        ("attn=-1", "a time of -1 ms is negative"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(CostError, match=message):
        parse_parts(text)


def test_as_toml() -> None:
    costs = costs_from_dict(
        tomllib.loads(
            """
            unit = "us"
            [parts]
            attn = { F = 1, W = 0.5 }
            a2a = 1.5
            mlp = 2
            stages.3 = { mlp = { W = 7 } }
            """
        )
    )
    assert costs.layer == LayerCosts(
        PartCosts(1_000, 1_000, 500), PartCosts(1_500, 1_500), PartCosts(2_000, 2_000, 2_000), PartCosts(1_500, 1_500)
    )
    assert costs.layer_of(3).mlp == PartCosts(2_000, 2_000, 7_000)
    assert costs.layer_of(2) == costs.layer


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"parts": 1}, "parts of the costs is no table"),
        ({"parts": {"gate": 1}}, "unknown entry 'gate' in parts"),
        ({"parts": {"attn": {"B": 1}}}, "unknown entry 'B' in parts.attn"),
        ({"parts": {"dispatch": {"W": 1}}}, "unknown entry 'W' in parts.dispatch"),
        ({"parts": {"stages": 1}}, "parts.stages of the costs is no table"),
        ({"parts": {"stages": {"0": {"x": 1}}}}, "unknown entry 'x' in parts.stages.0"),
        ({"parts": {"attn": "x"}}, "'x' is no time"),
    ],
)
def test_tables_that_cannot_be_read(table: dict[str, object], message: str) -> None:
    with pytest.raises(CostError, match=message):
        costs_from_dict(table)


@given(layer_costs, layer_costs)
def test_tables_come_back(layer: LayerCosts, other: LayerCosts) -> None:
    assert parts_from_dict(parts_to_dict(layer), "ns") == layer
    costs = Costs(layer=layer, stage_layers={2: other})
    assert costs_from_dict(costs_to_dict(costs)) == costs
    for order in (MoeOrder.ALIGNED, MoeOrder.DUALPIPE):
        whole = stage_costs(costs, Overlap(order))
        assert costs_from_dict(costs_to_dict(whole)) == whole
