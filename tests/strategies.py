"""Hypothesis strategies for the core's types."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from pipetrace.costs import Costs, Link, Network, PairCost, StageCosts
from pipetrace.schedule import Schedule
from pipetrace.schedules import build, get, names


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
stage_costs = st.builds(
    StageCosts, F=times, I=times, W=times, B=st.none() | times, recompute=st.just(0) | times, optim=st.just(0) | times
)
links = st.builds(
    Link, latency=times, bandwidth=st.none() | st.integers(1, 10**4).map(lambda thousandths: thousandths / 1000)
)
_pairs_of_ranks = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] != pair[1])


def networks(single_links: bool) -> st.SearchStrategy[Network]:
    """Networks, with single links between some of 8 ranks or without."""
    return st.just(Network()) | st.builds(
        Network,
        message_bytes=st.integers(0, 10**6),
        bandwidth=st.none() | st.integers(1, 10**4).map(lambda thousandths: thousandths / 1000),
        ranks_per_node=st.none() | st.integers(1, 4),
        across=st.none() | links,
        links=st.dictionaries(_pairs_of_ranks, links, max_size=3 if single_links else 0),
    )


@st.composite
def pair_costs(draw: st.DrawFn) -> PairCost:
    duration = draw(times)
    return PairCost(duration, draw(st.integers(0, duration)), draw(st.integers(0, duration)))


def costs(stages: int = 1) -> st.SearchStrategy[Costs]:
    """Costs with those of single stages among the first `stages`, which a schedule must have: each has stage 0.

    With more than one there are single links too, whose ranks a schedule must have.
    """
    return st.builds(
        Costs,
        default=stage_costs,
        stages=st.dictionaries(st.integers(0, stages - 1), stage_costs, max_size=4),
        pair=st.none() | pair_costs(),
        p2p=st.just(0) | times,
        network=networks(stages > 1),
    )


def within(given: Costs, schedule: Schedule) -> Costs:
    """Costs less those of stages and links that a schedule does not have."""
    links = {pair: link for pair, link in given.network.links.items() if max(pair) < schedule.ranks}
    return replace(
        given,
        stages={stage: of for stage, of in given.stages.items() if stage < schedule.stages},
        network=replace(given.network, links=links),
    )


@dataclass(frozen=True)
class Sizes:
    """What to build: a name, p, m and options that the schedule takes."""

    name: str
    ranks: int
    microbatches: int
    options: dict[str, object]

    def build(self) -> Schedule:
        return build(self.name, self.ranks, self.microbatches, **self.options)


@st.composite
def sizes(draw: st.DrawFn, ranks: int = 8, microbatches: int = 20) -> Sizes:
    """Sizes of any schedule, up to about the given p and m."""
    name = draw(st.sampled_from(names()))
    takes = get(name).options
    p = draw(st.integers(1, ranks))
    m = draw(st.integers(1, microbatches))
    options: dict[str, object] = {}
    if "chunks" in takes:
        options["chunks"] = draw(st.integers(1, 4))
    if "group" in takes:
        groups = [g for g in range(p, m + 1) if m % g == 0 or m % g >= p]
        options["group"] = draw(st.none() | st.sampled_from(groups)) if groups else None
    if "backward" in takes:
        options["backward"] = draw(st.sampled_from(("fifo", "lifo")))
    if name.startswith("zb-h"):
        p = max(p, 2)
    if name == "chimera":
        p += p % 2
        options["pipes"] = draw(st.sampled_from([pipes for pipes in range(2, p + 1, 2) if p % pipes == 0]))
        m = max(p, m - m % p)
    if name == "dualpipe":
        p += p % 2
        m = max(2 * p, m + m % 2)
    if name == "dualpipev":
        m = max(2 * p, m)
    return Sizes(name, p, m, options)
