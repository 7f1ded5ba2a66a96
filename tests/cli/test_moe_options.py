"""What the options for MoE layers mean together, and what is wrong with those that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from pipetrace.cli.cost_options import ActionCosts
from pipetrace.cli.moe_options import Grain, MoeOptions
from pipetrace.costs import Costs
from pipetrace.errors import PipetraceError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import After, MoeOrder, Overlap, add_communication, expand_moe
from pipetrace.schedule import Schedule
from pipetrace.schedules import build

MS = 1_000_000


def pairs(_: Costs) -> Schedule:
    return build("moe-1f1b", 2, 4)


def test_nothing_said_is_whole_stages() -> None:
    planned = MoeOptions().plan(pairs, ActionCosts())
    assert not planned.schedule.has_parts
    assert planned.parts is None
    assert not MoeOptions(layers=3).in_parts
    assert MoeOptions(moe_order=MoeOrder.SERIAL).in_parts


@pytest.mark.parametrize(
    ("options", "overlap"),
    [
        ({"layers": 2}, Overlap(MoeOrder.DUALPIPE, 2)),
        ({"parts": "mlp=2"}, Overlap(MoeOrder.DUALPIPE)),
        ({"moe_order": MoeOrder.ALIGNED}, Overlap(MoeOrder.ALIGNED)),
        ({"no_split": True}, Overlap(MoeOrder.DUALPIPE, split=False)),
        ({"weights": "mlp=end"}, Overlap(MoeOrder.DUALPIPE, mlp_weight=After.END)),
        ({"weights": " attn=mlp.F, mlp=attn.I "}, Overlap(attn_weight=After.MLP_F, mlp_weight=After.ATTN_I)),
    ],
)
def test_what_is_said_of_parts_makes_them(options: dict[str, Any], overlap: Overlap) -> None:
    planned = MoeOptions(**options).plan(pairs, ActionCosts())
    assert planned.parts is not None
    assert planned.parts.overlap == overlap
    assert planned.schedule.same_order(expand_moe(pairs(Costs()), overlap, planned.costs))


def test_a_grain_of_stages_is_whole_stages_at_what_their_parts_come_to() -> None:
    given = {"moe_order": MoeOrder.MEGATRON, "parts": "mlp=2,a2a=1.5", "layers": 2}
    stages, parts = (MoeOptions(**given, grain=grain).plan(pairs, ActionCosts()) for grain in (Grain.STAGE, None))  # type: ignore[arg-type]
    assert not stages.schedule.has_parts
    assert stages.costs.default.F == 2 * (1 + 1.5 + 2 + 1.5) * MS
    assert parts.parts is not None
    assert parts.costs.layer == LayerCosts(
        PartCosts(MS, MS, MS),
        PartCosts(3 * MS // 2, 3 * MS // 2),
        PartCosts(2 * MS, 2 * MS, 2 * MS),
        PartCosts(3 * MS // 2, 3 * MS // 2),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": "attn"}, "cannot read the cost 'attn' of a part"),
        ({"parts": "attn=1;mlp=2"}, "cannot read the cost 'attn=1;mlp=2' of a part"),
        ({"parts": "ATTN=1"}, "cannot read the cost 'ATTN=1' of a part"),
        ({"parts": "attn="}, "attn: '' is no time"),
        ({"parts": "mlp=1,attn=-1"}, "attn: a time of -1 ms is negative"),
        ({"parts": "attn.W=nan"}, "attn.W: 'nan' is no time"),
        ({"parts": "a2a=1e99"}, "a2a: a time of 1e99 ms is too long"),
        ({"layers": 0}, "stages of 0 layers"),
        ({"layers": 100_000}, "stages of 100000 layers"),
        ({"weights": "mlp=end", "moe_order": MoeOrder.SERIAL}, "where W runs is given"),
        ({"weights": "mlp=end", "no_split": True}, "where W runs is given"),
        ({"no_split": True, "moe_order": MoeOrder.ALIGNED}, "aligned does not split"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipetraceError) as refused:
        MoeOptions(**options).plan(pairs, ActionCosts())
    assert refused.value.message.startswith(message)
    assert "\n" not in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("weights", ["mlp", "mlp=never", "mlp=", "gate=end", "mlp=end,mlp=end", "mlp=end,"])
def test_weights_that_cannot_be_read(weights: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"write mlp=AFTER,attn=AFTER with AFTER one of attn\.F"):
        MoeOptions(weights=weights).plan(pairs, ActionCosts())


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="give --parts"):
        MoeOptions(layers=2).plan(pairs, ActionCosts(costs="F=2"))
    with pytest.raises(PipetraceError, match="lists its sends and receives"):
        MoeOptions(layers=2).plan(lambda _: add_communication(build("1f1b", 2, 4)), ActionCosts())
    in_parts = expand_moe(pairs(Costs()), Overlap(MoeOrder.ALIGNED))
    with pytest.raises(PipetraceError, match="is in parts of layers already"):
        MoeOptions(layers=2).plan(lambda _: in_parts, ActionCosts())
    assert MoeOptions(parts="mlp=2").plan(lambda _: in_parts, ActionCosts()).parts is None
    file = tmp_path / "costs.toml"
    for text, message in (
        ("[parts]\nattn = -1", "parts.attn: a time of -1 ms is negative"),
        ('[parts]\nattn = { I = "x" }', "parts.attn.I: 'x' is no time"),
        ("[parts]\nstages.0 = { mlp = -2 }", "parts.stages.0.mlp: a time of -2 ms"),
        ("[parts]\nstages.x = { mlp = 2 }", "parts.stages of the costs is no table"),
        ("[model]\nhidden = 100", "model of the costs has no ffn"),
        ("default = { recompute = 1 }\n[parts]\nattn = 1", "recompute is a cost of whole stages"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(PipetraceError) as refused:
            MoeOptions().plan(pairs, ActionCosts(costs_file=file))
        assert message in refused.value.message
