from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.costs import Costs, StageCosts
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.schedules.building_block import PERIOD
from pipetrace.schedules.v_min import block
from pipetrace.simulate import simulate

UNIT = 1_000_000


@pytest.mark.parametrize(
    ("p", "m", "makespan", "at_input_grad", "at_weight_grad"),
    [
        (2, 4, 27, [3, 2], [3, 4]),
        (4, 4, 35, [4, 4, 4, 4], [4, 4, 4, 4]),
        (4, 8, 59, [4, 4, 4, 4], [4, 4, 4, 4]),
    ],
)
def test_makespan_and_memory_of_the_reference(
    p: int, m: int, makespan: int, at_input_grad: list[int], at_weight_grad: list[int]
) -> None:
    """The authors' own schedules, at F = I = W = 1 and free transfers."""
    schedule = build("v-min", p, m)
    assert bubbles(simulate(schedule)).makespan == makespan * UNIT
    peaks = peak_in_flight(schedule)
    assert list(peaks.release_at_input_grad) == at_input_grad
    assert list(peaks.release_at_weight_grad) == at_weight_grad


def test_makespan_of_the_reference_on_more_ranks() -> None:
    assert bubbles(simulate(build("v-min", 8, 16))).makespan == 123 * UNIT


@given(st.integers(1, 16), st.integers(1, 64))
def test_a_third_of_the_memory_of_1f1b(p: int, m: int) -> None:
    """(p+4)//3 microbatches of two chunks, where 1F1B holds p of two (section 4 of the paper)."""
    schedule = build("v-min", p, m)
    schedule.validate()
    assert max(peak_in_flight(schedule).release_at_weight_grad) <= 2 * ((p + 4) // 3)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 17, 32, 64])
def test_no_slower_than_1f1b_on_the_same_v(p: int, m: int) -> None:
    least, full = (bubbles(simulate(build(name, p, m))).makespan for name in ("v-min", "1f1b-v"))
    assert least <= full


@pytest.mark.parametrize("p", range(1, 25))
def test_block_fills_its_period_on_every_rank(p: int) -> None:
    """No two passes of a rank meet, also where 3 divides p, and its memory is within the limit for ever."""
    repeated = block(p)
    for rank in range(p):
        assert sorted(starts[rank] % PERIOD for starts in repeated.starts) == list(range(PERIOD))
        assert repeated.peak(rank) <= 2 * ((p + 4) // 3)


@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (7, 20)])
def test_the_bubble_grows_where_costs_differ(ranks: int, microbatches: int) -> None:
    """The paper's caveat: nothing in V-Min absorbs F, I and W of different lengths."""
    costs = Costs(StageCosts(F=2 * UNIT, I=3 * UNIT, W=UNIT))
    idle = [
        min(bubbles(simulate(build("v-min", ranks, m, costs=costs), costs)).in_span_idle)
        for m in (microbatches, 2 * microbatches)
    ]
    assert idle[1] > idle[0]
