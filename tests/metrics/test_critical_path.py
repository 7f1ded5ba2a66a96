from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from pipetrace.action import Action, Kind, parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.metrics import Reason, Step, critical_path
from pipetrace.schedules import build, names
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from tests.metrics.test_bindings import TWO, measured
from tests.strategies import Sizes, costs, sizes, within


def length(path: list[Step]) -> int:
    return sum(step.duration + step.delay for step in path)


@given(sizes(), costs(16))
def test_it_is_as_long_as_the_makespan(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    for path in (critical_path(schedule, timeline), critical_path(schedule, timeline, costs=given)):
        assert sum(step.duration for step in path) == timeline.makespan
        assert all(step.delay == 0 for step in path)
        for before, after in pairwise(path):
            assert before.end == after.start
        assert path[0].reason is Reason.FIRST
        assert path[-1].end == timeline.span[1]


@given(sizes(ranks=4, microbatches=8), costs(16))
def test_it_is_critical(size: Sizes, given: Costs) -> None:
    """A ns more for what stands on it makes the step longer: the ideal has no slack there."""
    schedule = size.build()
    given = within(given, schedule)
    path = critical_path(schedule, simulate(schedule, given), costs=given)
    transfers = sum(step.transfer for step in path)
    if given.network.links or given.network.across is not None or not transfers:
        return
    slower = Costs(given.default, given.stages, given.pair, given.p2p + 1, given.network)
    assert simulate(schedule, slower).makespan >= simulate(schedule, given).makespan + transfers


@pytest.mark.parametrize("name", names())
def test_slower_stages_on_it_make_the_step_slower(name: str) -> None:
    schedule = build(name, 4, 8)
    stage = StageCosts(1000, 1300, 700)
    path = critical_path(schedule, simulate(schedule, Costs(stage)))
    stages = {half.stage for step in path for half in ([step.action] if isinstance(step.action, Action) else [])}
    for on_path in stages:
        slower = Costs(stage, {on_path: StageCosts(1001, 1301, 701)})
        assert simulate(schedule, slower).makespan > simulate(schedule, Costs(stage)).makespan


def test_1f1b_step_by_step() -> None:
    schedule = build("1f1b", 2, 2)
    path = critical_path(schedule, simulate(schedule, Costs(StageCosts(10, 10, 10), p2p=3)))
    assert [(str(step.action), step.rank, step.start, step.end, step.cause) for step in path] == [
        ("0F0", 0, 0, 10, "is the first"),
        ("1F0", 1, 10, 13, "carries F0 of stage 0 on rank 0"),
        ("1F0", 1, 13, 23, "waits for F0 of stage 0 on rank 0"),
        ("1B0", 1, 23, 43, "runs on rank 1 after F0 of stage 1"),
        ("1F1", 1, 43, 53, "runs on rank 1 after B0 of stage 1"),
        ("1B1", 1, 53, 73, "runs on rank 1 after F1 of stage 1"),
        ("0B1", 0, 73, 76, "carries B1 of stage 1 on rank 1"),
        ("0B1", 0, 76, 96, "waits for B1 of stage 1 on rank 1"),
    ]
    assert [step.transfer for step in path] == [False, True, False, False, False, False, True, False]
    assert str(path[1]) == "transfer to 1F0 on rank 1, 10 ... 13 ns: carries F0 of stage 0 on rank 0"


def test_of_what_was_measured_delays_make_up_the_rest() -> None:
    timeline = measured(
        ("0F0", 0, 5, 10),
        ("0F1", 0, 12, 20),
        ("1F0", 1, 16, 29),
        ("1F1", 1, 36, 40),
        waits=(("1RECV_F0", 1, 0, 10, 15), ("1RECV_F1", 1, 31, 31, 35)),
    )
    path = critical_path(TWO, timeline)
    assert [(str(step.action), step.transfer, step.delay, step.duration) for step in path] == [
        ("0F0", False, 0, 5),
        ("1F0", True, 0, 5),
        ("1F0", False, 1, 13),
        ("1F1", True, 2, 4),
        ("1F1", False, 1, 4),
    ]
    assert length(path) == timeline.makespan
    assert path[3].cause == "carries F1 of stage 0 on rank 0, whose receive was posted after F0 of stage 1"


def test_clocks_that_run_apart_leave_the_sum_whole() -> None:
    timeline = measured(("0F0", 0, 50, 60), ("0F1", 0, 60, 70), ("1F0", 1, 0, 10), ("1F1", 1, 65, 75))
    path = critical_path(TWO, timeline)
    assert [str(step.action) for step in path] == ["0F0", "0F1", "1F1"]
    assert path[0].delay == 50
    assert length(path) == timeline.makespan


def test_a_circle_ends() -> None:
    """Two ranks whose clocks differ, each at once with what it needs from the other."""
    timeline = measured(("1F0", 1, 0, 5), ("0F0", 0, 0, 5), ("1B0", 1, 0, 9), ("0B0", 0, 0, 12))
    assert length(critical_path(TWO, timeline)) == timeline.makespan


def test_of_an_empty_timeline() -> None:
    assert critical_path(TWO, Timeline.from_tiles(2, [])) == []


def test_a_slow_rank_shows() -> None:
    schedule = build("1f1b", 4, 16)
    timeline = simulate(schedule, Costs(StageCosts(10, 10, 10), {2: StageCosts(15, 15, 15)}))
    path = critical_path(schedule, timeline)
    assert sum(step.duration for step in path if step.rank == 2) > 0.8 * timeline.makespan
    assert parse_action("2F15") in [step.action for step in path]
    assert all(step.action.kind in (Kind.F, Kind.B) for step in path if isinstance(step.action, Action))
