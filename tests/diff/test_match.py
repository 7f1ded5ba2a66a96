from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.costs_io import parse_costs
from pipetrace.diff import diff, median_step
from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.strategies import Sizes, costs, sizes, within
from tests.test_schedule import of

IDEAL = simulate(build("zb-h1", 4, 8))


@given(sizes(), costs(16), st.integers(-(10**12), 10**12))
def test_a_timeline_differs_from_itself_in_nothing(size: Sizes, given: Costs, shift: int) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    same = diff(timeline, timeline.shifted(shift))
    assert not np.any(same.slip)
    assert not np.any(same.start_slip)
    assert (same.missing, same.extra, same.reordered) == ((), (), ())
    assert same.ideal_bubbles == same.measured_bubbles


@given(sizes(), costs(16), costs(16))
def test_slip_is_start_slip_and_growth(size: Sizes, one: Costs, other: Costs) -> None:
    schedule = size.build()
    one, other = within(one, schedule), within(other, schedule)
    result = diff(simulate(schedule, one), simulate(schedule, other))
    assert result.code.size == len(schedule) + np.count_nonzero(schedule.partner)
    assert np.array_equal(result.slip, result.start_slip + result.measured_duration - result.ideal_duration)
    assert np.array_equal(np.sort(result.ideal_start), result.ideal_start)


def test_a_slower_stage_shows_in_its_actions() -> None:
    slow = simulate(build("zb-h1", 4, 8), Costs(stages={2: StageCosts(1_500_000, 1_500_000, 1_500_000)}))
    result = diff(IDEAL, slow)
    grown = result.measured_duration - result.ideal_duration
    assert set(grown[result.rank == 2].tolist()) == {500_000}
    assert not grown[result.rank != 2].any()
    assert result.measured_bubbles.makespan > result.ideal_bubbles.makespan


def test_missing_and_extra_actions() -> None:
    gone = [parse_action("2W7"), parse_action("0F3")]
    tiles = [tile for tile in IDEAL if tile.action not in gone]
    extra = parse_action("1F8")
    measured = Timeline.from_tiles(4, [*tiles, Tile(extra, 1, Lane.COMPUTE, 10**9, 10**9 + 5)])
    result = diff(IDEAL, measured)
    assert [str(action) for action in result.missing] == ["0F3", "2W7"]
    assert result.extra == (extra,)
    assert result.reordered == ()


def test_two_swapped_actions() -> None:
    lists = [list(build("zb-h1", 2, 4).actions(rank)) for rank in range(2)]
    lists[1][1], lists[1][2] = lists[1][2], lists[1][1]
    schedule = build("zb-h1", 2, 4)
    swapped = Schedule.from_actions("swapped", schedule.placement, 4, lists).validate()
    result = diff(simulate(schedule), simulate(swapped))
    assert [str(action) for action in result.reordered] in (["1I0"], ["1F1"])


def test_one_action_moved_far_is_one_reordered() -> None:
    ideal = simulate(of("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", microbatches=4))
    measured = simulate(of("0F0 0F1 0F2 0B0 0B1 0B2 0F3 0B3", microbatches=4))
    assert [str(action) for action in diff(ideal, measured).reordered] == ["0F3"]


def test_a_pair_is_matched_by_halves() -> None:
    ideal = simulate(of("0F0 (0F1;0B0)OVERLAP_F_B 0B1", microbatches=2), parse_costs("", unit="ns"))
    measured = simulate(of("0F0 0F1 0B0 0B1", microbatches=2), parse_costs("", unit="ns"))
    result = diff(ideal, measured)
    assert (result.missing, result.extra, result.reordered) == ((), (), ())
    assert result.code.size == 4


def test_refusals() -> None:
    with pytest.raises(TraceError, match="4 ranks, the recording 2"):
        diff(IDEAL, simulate(build("zb-h1", 2, 8)))
    with pytest.raises(TraceError, match="nothing that was measured"):
        diff(IDEAL, Timeline.from_tiles(4, [Tile(parse_action("9F9"), 0, Lane.COMPUTE, 0, 1)]))
    with pytest.raises(TraceError, match="0F0 was measured on rank 1, the schedule puts it on rank 0"):
        diff(IDEAL, Timeline.from_tiles(4, [Tile(parse_action("0F0"), 1, Lane.COMPUTE, 0, 1)]))


def test_median_step() -> None:
    steps = [simulate(build("1f1b", 2, 2), parse_costs(f"F={f}")) for f in (5, 1, 3, 2, 4)]
    assert median_step(steps) == 2
    assert median_step(steps[:4]) == 3
    with pytest.raises(TraceError):
        median_step([])


def test_dict_has_every_action() -> None:
    table = diff(IDEAL, IDEAL).to_dict()
    assert len(table["actions"]) == 96
    assert table["actions"][0] == {
        "action": "0F0",
        "rank": 0,
        "ideal_start_ns": 0,
        "measured_start_ns": 0,
        "slip_ns": 0,
        "ideal_duration_ns": 1_000_000,
        "measured_duration_ns": 1_000_000,
    }
    assert table["per_rank"][0]["in_span_idle_ns"] == {"ideal": 3_000_000, "measured": 3_000_000}
