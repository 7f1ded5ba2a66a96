from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Kind, code_kind
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.schedules.building_block import PERIOD, Pass
from pipetrace.schedules.one_f_one_b_v import block
from pipetrace.simulate import simulate

UNIT = 1_000_000


@pytest.mark.parametrize(
    ("p", "m", "makespan", "peak"),
    [
        (2, 4, 28, [4, 4]),
        (4, 4, 39, [5, 6, 6, 6]),
        (4, 8, 63, [6, 6, 6, 6]),
        (8, 16, 129, [12] * 8),
    ],
)
def test_makespan_and_memory_of_the_reference(p: int, m: int, makespan: int, peak: list[int]) -> None:
    """The zero-bubble authors' own schedules, at F = I = W = 1 and free transfers."""
    schedule = build("1f1b-v", p, m)
    assert bubbles(simulate(schedule)).makespan == makespan * UNIT
    peaks = peak_in_flight(schedule)
    assert list(peaks.release_at_input_grad) == list(peaks.release_at_weight_grad) == peak


@given(st.integers(1, 16), st.integers(1, 64))
def test_two_thirds_of_the_memory_of_1f1b(p: int, m: int) -> None:
    """The least whole number of microbatches from (2p+1)/3 on, where 1F1B holds p."""
    schedule = build("1f1b-v", p, m)
    schedule.validate()
    assert max(peak_in_flight(schedule).release_at_weight_grad) <= 2 * ((2 * p + 3) // 3)


def test_backwards_are_full() -> None:
    assert set(code_kind(build("1f1b-v", 4, 6).code).tolist()) == {Kind.F, Kind.B}


@pytest.mark.parametrize("p", range(1, 25))
def test_block_fills_its_period_on_every_rank(p: int) -> None:
    """Two forwards of a slot and two backwards of two never meet, whatever the number of ranks."""
    repeated = block(p)
    for rank in range(p):
        slots = [repeated.starts[which][rank] for which in (Pass.F_DOWN, Pass.F_UP)]
        for which in (Pass.I_UP, Pass.I_DOWN):
            slots += [repeated.starts[which][rank], repeated.starts[which][rank] + 1]
        assert sorted(slot % PERIOD for slot in slots) == list(range(PERIOD))
        assert repeated.peak(rank) <= 2 * ((2 * p + 3) // 3)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 4), (4, 8), (8, 16)])
def test_last_rank_turns_each_microbatch_at_once(p: int, m: int) -> None:
    """The turn of the V: its two stages follow each other, forward and backward."""
    words = [str(action) for action in build("1f1b-v", p, m).actions(p - 1)]
    for i in range(m):
        assert words.index(f"{p}F{i}") == words.index(f"{p - 1}F{i}") + 1
        assert words.index(f"{p - 1}B{i}") == words.index(f"{p}B{i}") + 1
