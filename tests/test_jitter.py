from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import NO_ACTION, Action, Kind
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.costs_io import costs_from_dict, costs_to_dict
from pipetrace.errors import CostError
from pipetrace.jitter import MAX_SEED, Jitter, parse_jitter
from tests.strategies import Sizes, sizes

MS = 1_000_000
CODES = np.array([Action(Kind.F, 0, microbatch).code for microbatch in range(2000)])


@given(st.floats(0, 1), st.integers(0, MAX_SEED), st.integers(0, 10**12))
def test_it_stays_within_its_share(share: float, seed: int, ns: int) -> None:
    took = Jitter(share, seed).applied(CODES[:50], np.full(50, ns))
    assert took.dtype == np.int64
    assert ((1 - share) * ns - 1 <= took).all()
    assert (took <= (1 + share) * ns + 1).all()


def test_it_is_even_and_differs_by_action_and_by_seed() -> None:
    ns = np.full(CODES.size, MS)
    one, other = Jitter(0.5, 1).applied(CODES, ns), Jitter(0.5, 2).applied(CODES, ns)
    for took in (one, other):
        counts, _ = np.histogram(took, bins=10, range=(MS // 2, 3 * MS // 2))
        assert counts.sum() == CODES.size
        assert counts.min() > 140
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.1
    assert len(set(one.tolist())) > 1990


def test_an_action_takes_the_same_alone_and_among_others_in_every_version() -> None:
    ns = np.full(CODES.size, MS)
    together = Jitter(0.25, 3).applied(CODES, ns)
    assert Jitter(0.25, 3).applied(CODES[7:8], ns[:1])[0] == together[7]
    # Runs that were recorded are read with the factors they ran with.
    assert together[:4].tolist() == [804_961, 892_286, 1_126_439, 834_352]


@given(sizes(ranks=4, microbatches=8))
def test_a_pair_takes_what_its_halves_take(size: Sizes) -> None:
    schedule = size.build()
    costs = Costs(StageCosts(3 * MS, 2 * MS, MS), jitter=Jitter(0.5, 5))
    durations = costs.durations(schedule)
    jitter = costs.jitter
    assert jitter is not None
    for row, code in enumerate(schedule.code.tolist()):
        expected = 0
        for half in (code, int(schedule.partner[row])):
            if half != NO_ACTION:
                of = Action.from_code(half)
                plain = {Kind.F: 3, Kind.B: 3, Kind.I: 2, Kind.W: 1}[of.kind] * MS
                expected += int(jitter.applied(np.array([half]), np.array([plain]))[0])
        assert durations[row] == expected
    pair = replace(costs, pair=PairCost(5 * MS, 3 * MS, 4 * MS))
    duration = pair.durations(schedule)
    for ready in pair.ready(schedule, duration):
        assert (ready <= duration).all()


def test_the_table_and_the_command_line_read_back() -> None:
    costs = Costs(jitter=Jitter(0.5, 7))
    assert costs_from_dict(costs_to_dict(costs)) == costs
    assert costs_from_dict({"jitter": {"share": 1}}).jitter == Jitter(1)
    assert parse_jitter("0.5") == Jitter(0.5)
    assert parse_jitter("0.5:7") == Jitter(0.5, 7)


@pytest.mark.parametrize("text", ["", "x", "1.5", "-0.1", "nan", "0.5:", "0.5:-1", "0.5:x", f"0.5:{MAX_SEED + 1}", "½"])
def test_what_is_no_jitter_is_refused(text: str) -> None:
    with pytest.raises(CostError) as caught:
        parse_jitter(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "table", [1, {}, {"seed": 1}, {"share": "1"}, {"share": True}, {"share": 0.5, "seed": 1.5}, {"share": math.inf}]
)
def test_a_table_that_is_no_jitter_is_refused(table: object) -> None:
    with pytest.raises(CostError) as caught:
        costs_from_dict({"jitter": table})
    assert caught.value.hint


def test_it_changes_the_ideal() -> None:
    schedule = pipetrace.build("zb-h1", 4, 8)
    even, scattered = (pipetrace.simulate(schedule, Costs(jitter=jitter)).makespan for jitter in (None, Jitter(0.5)))
    assert even != scattered
