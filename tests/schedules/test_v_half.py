from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.schedules.building_block import PERIOD
from pipetrace.schedules.v_half import block
from pipetrace.simulate import simulate

UNIT = 1_000_000


@pytest.mark.parametrize(
    ("p", "m", "makespan", "peak"),
    [
        (2, 4, 25, [4, 4]),
        (4, 4, 34, [5, 6, 6, 6]),
        (4, 8, 53, [6, 6, 6, 6]),
        (8, 16, 113, [10] * 8),
    ],
)
def test_makespan_and_memory_of_the_reference(p: int, m: int, makespan: int, peak: list[int]) -> None:
    """The authors' own schedules, at F = I = W = 1 and free transfers."""
    schedule = build("v-half", p, m)
    assert bubbles(simulate(schedule)).makespan == makespan * UNIT
    peaks = peak_in_flight(schedule)
    assert list(peaks.release_at_input_grad) == list(peaks.release_at_weight_grad) == peak


@given(st.integers(1, 16), st.integers(1, 64))
def test_half_the_memory_of_1f1b(p: int, m: int) -> None:
    """(p+2)//2 microbatches of two chunks, where 1F1B holds p of two (section 4 of the paper)."""
    schedule = build("v-half", p, m)
    schedule.validate()
    assert max(peak_in_flight(schedule).release_at_weight_grad) <= 2 * ((p + 2) // 2)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
@pytest.mark.parametrize("m", [1, 2, 4, 8, 16, 17, 32, 64])
def test_no_slower_than_1f1b_on_the_same_v(p: int, m: int) -> None:
    half, full = (bubbles(simulate(build(name, p, m))).makespan for name in ("v-half", "1f1b-v"))
    assert half <= full


@pytest.mark.parametrize("p", range(1, 25))
def test_block_fills_its_period_on_every_rank(p: int) -> None:
    """No two passes of a rank meet, for odd and for even p, and its memory is within the limit for ever."""
    repeated = block(p)
    for rank in range(p):
        assert sorted(starts[rank] % PERIOD for starts in repeated.starts) == list(range(PERIOD))
        assert repeated.peak(rank) <= 2 * ((p + 2) // 2)


def test_each_microbatch_costs_only_its_work() -> None:
    """A steady state without a bubble: longer steps add six units a microbatch."""
    first, second = (bubbles(simulate(build("v-half", 8, m))).makespan for m in (32, 48))
    assert second - first == (48 - 32) * 6 * UNIT
