"""What the three schedules of arXiv:2405.15362 have in common: costs, memory, and the block itself."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import ScheduleError
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build, get
from pipetrace.schedules.building_block import Block
from pipetrace.simulate import simulate

NAMES = ("1f1b-v", "v-half", "v-min")
names = st.sampled_from(NAMES)


def test_peak_is_the_lifetime_over_the_period() -> None:
    """A chunk of 13 slots beside one of 6: three times and once at once, the same in each period."""
    assert Block(((0,), (1,), (2,), (3,), (6,), (12,))).peak(0) == 4
    assert Block(((0,), (1,), (2,), (4,))).peak(0) == 2


times = st.integers(0, 50)
stage_costs = st.builds(StageCosts, F=times, I=times, W=times)


@given(
    names,
    st.integers(1, 8),
    st.integers(1, 12),
    st.builds(
        Costs,
        default=stage_costs,
        stages=st.dictionaries(st.integers(0, 1), stage_costs, max_size=2),
        p2p=st.sampled_from((0, 1, 20)),
    ),
)
def test_fitted_to_costs_it_is_never_slower(name: str, p: int, m: int, costs: Costs) -> None:
    fitted, unit = build(name, p, m, costs=costs), build(name, p, m)
    assert bubbles(simulate(fitted, costs)).makespan <= bubbles(simulate(unit, costs)).makespan


@given(names, st.integers(1, 10), st.integers(1, 24), st.integers(2, 24))
def test_within_any_memory(name: str, p: int, m: int, memory: int) -> None:
    """Less than the block takes is slower, never a deadlock."""
    schedule = build(name, p, m, memory=memory)
    assert max(peak_in_flight(schedule).release_at_weight_grad) <= memory


@pytest.mark.parametrize("name", NAMES)
def test_memory_beyond_the_limit_changes_nothing(name: str) -> None:
    assert build(name, 4, 8, memory=1000).same_order(build(name, 4, 8))


@pytest.mark.parametrize("name", NAMES)
def test_memory_of_less_than_a_microbatch(name: str) -> None:
    with pytest.raises(ScheduleError, match=f"{name} in the memory of 1 chunks") as error:
        build(name, 4, 8, memory=1)
    assert "at least 2" in error.value.hint


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_has_no_bubble(name: str) -> None:
    assert bubbles(simulate(build(name, 1, 5))).global_idle == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_order_every_time(name: str) -> None:
    costs = Costs(StageCosts(F=10, I=12, W=8), p2p=3)
    assert build(name, 7, 19, costs=costs).same_order(build(name, 7, 19, costs=costs))


@pytest.mark.parametrize("name", NAMES)
def test_builds_in_no_time(name: str) -> None:
    begin = time.process_time()
    get(name).build(16, 64)
    assert time.process_time() - begin < 2
