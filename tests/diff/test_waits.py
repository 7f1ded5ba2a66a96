from __future__ import annotations

from hypothesis import given

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff.observe import NOBODY
from pipetrace.diff.waits import Awaits, recorded_bubbles, waits
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Wait, Waiting
from tests.diff.cases import two_costs, waitings

MS = 1_000_000


@given(two_costs(), waitings())
def test_busy_and_idle_by_cause_sum_to_the_makespan(case: tuple[Schedule, Costs, Costs], waiting: Waiting) -> None:
    schedule, costs, _ = case
    timeline = simulate(schedule, costs, waiting)
    of = waits(schedule, timeline, costs)
    assert of.makespan == timeline.makespan
    for rank in range(schedule.ranks):
        assert of.busy[rank] + sum(of.of(rank).values()) == of.makespan
    assert all(ns > 0 for ns in of.idle.values())


def test_a_wait_names_whose_output_it_is_for() -> None:
    schedule = build("1f1b", 4, 8)
    timeline = simulate(schedule, Costs(stages={2: StageCosts(2 * MS, 2 * MS, 2 * MS)}))
    of = waits(schedule, timeline)
    assert of.idle[3, Awaits.INPUT, 2] > 5 * MS
    assert of.of(3)[Awaits.TRANSFER] == 0


def test_a_late_post_is_told_from_what_is_under_way() -> None:
    schedule, costs = build("1f1b", 2, 4), Costs(p2p=300_000)
    ahead = waits(schedule, simulate(schedule, costs), costs)
    assert not any(awaits is Awaits.POST for _, awaits, _ in ahead.idle)
    assert ahead.of(0)[Awaits.TRANSFER] > 0
    late = simulate(schedule, costs, Waiting(Wait.INLINE, post=100_000))
    of = waits(schedule, late, costs)
    assert any(awaits is Awaits.POST for _, awaits, _ in of.idle)
    for rank in range(2):
        assert of.busy[rank] + sum(of.of(rank).values()) == late.makespan


def test_ranks_that_were_not_recorded_are_not_idle() -> None:
    schedule = build("1f1b", 3, 4)
    timeline = simulate(schedule)
    some = timeline.where(timeline.rank != 1)
    of = waits(schedule, some)
    assert set(of.busy) == {0, 2} == {rank for rank, _, _ in of.idle}
    figures = recorded_bubbles(some)
    assert sum(figures.global_idle.values()) == sum(ns for (rank, _, _), ns in of.idle.items())
    assert 0 < figures.fraction < 1
    assert all(source == NOBODY for _, awaits, source in of.idle if awaits is Awaits.HOST)


def test_nothing_is_idle_where_nothing_is() -> None:
    empty = Timeline.from_tiles(2, [])
    assert waits(build("1f1b", 2, 2), empty).idle == {}
    assert recorded_bubbles(empty).fraction == 0
