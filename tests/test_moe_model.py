from __future__ import annotations

import pytest

from pipetrace.costs_io import costs_from_dict
from pipetrace.errors import CostError
from pipetrace.moe_model import MoeModel, model_from_dict
from pipetrace.part_costs import PartCosts

SMALL = {"hidden": 1000, "ffn": 500, "experts": 10, "top_k": 2, "tokens": 100, "sequence": 50, "ep": 4}
ON = {"tflops": 1, "bandwidth": 1}


def test_by_hand() -> None:
    layer = MoeModel(**SMALL, **ON, latency=7).layer
    linear = 2 * 100 * (4 * 1000**2 + 1000 * 10)  # 802 MFLOP, a ns each 1000
    core = 2 * 100 * 50 * 1000
    assert layer.attn == PartCosts((linear + core) // 1000, (linear + 2 * core) // 1000, linear // 1000)
    assert layer.mlp == PartCosts(*[2 * 100 * 2 * 3 * 1000 * 500 // 1000] * 3)
    # 100 tokens to 2 experts each, 1000 elements of 2 bytes, three quarters of them to other ranks, at 1 byte a ns.
    assert layer.dispatch == layer.combine == PartCosts(7 + 300_000, 7 + 300_000)


def test_what_is_dispatched_can_be_narrower() -> None:
    layer = MoeModel(**SMALL, **ON, dispatch_bytes=1).layer
    assert layer.dispatch == PartCosts(150_000, 300_000)
    assert layer.combine == PartCosts(300_000, 300_000)


def test_one_rank_sends_nothing() -> None:
    assert MoeModel(**SMALL | {"ep": 1}, **ON).layer.dispatch == PartCosts(0, 0)


def test_from_a_costs_file() -> None:
    table = {**SMALL, **ON}
    costs = costs_from_dict({"unit": "us", "model": {**table, "latency": 0.007}, "parts": {"mlp": {"W": 5}}})
    assert costs.layer is not None
    assert costs.layer.dispatch.F == 300_007
    assert costs.layer.mlp == PartCosts(600_000, 600_000, 5_000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "hidden 0 of the model"),
        ({"hidden": 1.5}, "hidden 1.5 of the model"),
        ({"hidden": True}, "hidden True of the model"),
        ({"tflops": 0}, "tflops 0 of the model"),
        ({"tflops": float("nan")}, "tflops nan of the model"),
        ({"bandwidth": "fast"}, "bandwidth 'fast' of the model"),
        ({"top_k": 11}, "top_k 11 of 10 experts"),
        ({"tflops": 1e-9}, "takes over 1000 s"),
        ({"layers": 3}, "unknown entry 'layers'"),
    ],
)
def test_what_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(CostError, match=message):
        _ = model_from_dict(SMALL | ON | change, "ms").layer


def test_what_is_missing() -> None:
    with pytest.raises(CostError, match="model of the costs has no tflops"):
        model_from_dict(SMALL, "ms")
    with pytest.raises(CostError, match="model of the costs is no table"):
        model_from_dict(7, "ms")
