from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.costs import Costs, Network, PairCost, StageCosts
from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.same_model import cut
from tests.strategies import costs

PLAIN = Costs(StageCosts(F=12, I=24, W=6), p2p=5, network=Network(message_bytes=100, bandwidth=2))


def test_as_many_stages_as_ranks_cost_what_they_cost() -> None:
    assert cut(PLAIN, 4, 4) is PLAIN


def test_twice_the_stages_cost_half_and_send_the_same() -> None:
    assert cut(PLAIN, 4, 8) == Costs(StageCosts(F=6, I=12, W=3), p2p=5, network=PLAIN.network)


def test_everything_of_a_stage_is_cut() -> None:
    stage = StageCosts(F=4, I=6, W=8, B=12, recompute=2, reduce_grad=20, optim=10)
    of = cut(Costs(stage, pair=PairCost(16, 8, 12)), 2, 4)
    assert of.default == StageCosts(F=2, I=3, W=4, B=6, recompute=1, reduce_grad=10, optim=5)
    assert of.pair == PairCost(8, 4, 6)


def test_a_chunk_costs_what_it_covers() -> None:
    of = Costs(StageCosts(12, 12, 12), stages={1: StageCosts(24, 12, 12)})
    assert [cut(of, 2, 4).of(stage).F for stage in range(4)] == [6, 6, 12, 12]
    # Three stages over two: the middle one covers a third of each.
    assert [cut(of, 2, 3).of(stage).F for stage in range(3)] == [8, 4 + 8, 16]
    assert [cut(of, 2, 1).of(stage).F for stage in range(1)] == [36]


@given(costs(6), st.integers(1, 6), st.integers(1, 24))
def test_the_model_costs_the_same_however_it_is_cut(plain: Costs, ranks: int, stages: int) -> None:
    of = cut(plain, ranks, stages)
    for name in ("F", "I", "W", "full_backward", "recompute", "optim"):
        whole = sum(getattr(plain.of(stage), name) for stage in range(ranks))
        # Each stage is rounded to the ns; I and W of a full backward both are.
        assert sum(getattr(of.of(stage), name) for stage in range(stages)) == pytest.approx(whole, abs=stages + 1)
    assert (of.p2p, of.network) == (plain.p2p, plain.network)


def test_layers_of_a_stage_stay_its_own() -> None:
    own = LayerCosts(mlp=PartCosts(5, 6, 7))
    costs = Costs(stage_layers={1: own})
    of = cut(costs, 2, 6)
    assert [of.layer_of(stage) for stage in range(6)] == [LayerCosts()] * 3 + [own] * 3
    assert cut(costs, 2, 2) == costs
    with pytest.raises(CostError, match="3 stages are no whole number for each of 2 ranks"):
        cut(costs, 2, 3)
