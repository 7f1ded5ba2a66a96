"""Hypothesis strategies for the core's types."""

from __future__ import annotations

from hypothesis import strategies as st

from pipetrace.action import (
    COMPUTE_KINDS,
    MAX_LAYER,
    MAX_MICROBATCH,
    MAX_PIPE,
    MAX_STAGE,
    WHOLE_STAGE_KINDS,
    Action,
    Kind,
    Pair,
    Part,
)
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.schedules import get, names


@st.composite
def actions(draw: st.DrawFn, kinds: tuple[Kind, ...] = tuple(Kind)) -> Action:
    kind = draw(st.sampled_from(kinds))
    layer = part = None
    if kind in COMPUTE_KINDS and draw(st.booleans()):
        layer = draw(st.integers(0, MAX_LAYER))
        part = draw(st.sampled_from((Part.ATTN, Part.MLP) if kind is Kind.W else tuple(Part)))
    return Action(
        kind,
        draw(st.integers(0, MAX_STAGE)),
        None if kind in WHOLE_STAGE_KINDS else draw(st.integers(0, MAX_MICROBATCH)),
        draw(st.integers(0, MAX_PIPE)),
        layer,
        part,
    )


def pairs() -> st.SearchStrategy[Pair]:
    return st.builds(Pair, actions((Kind.F,)), actions((Kind.B, Kind.I)))


times = st.integers(0, 10_000_000)
stage_costs = st.builds(StageCosts, F=times, I=times, W=times, B=st.none() | times)


@st.composite
def pair_costs(draw: st.DrawFn) -> PairCost:
    duration = draw(times)
    return PairCost(duration, draw(st.integers(0, duration)), draw(st.integers(0, duration)))


def costs(stages: int = 16) -> st.SearchStrategy[Costs]:
    return st.builds(
        Costs,
        default=stage_costs,
        stages=st.dictionaries(st.integers(0, stages - 1), stage_costs, max_size=4),
        pair=st.none() | pair_costs(),
        p2p=st.just(0) | times,
    )


@st.composite
def sizes(draw: st.DrawFn) -> tuple[str, int, int]:
    """(name, ranks, microbatches) of a schedule that can be built."""
    name = draw(st.sampled_from(names()))
    return name, draw(st.integers(get(name).min_ranks, 9)), draw(st.integers(1, 20))
