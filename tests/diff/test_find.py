"""Known faults, put into simulated steps with noise, are found, named and measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import Kind, code_text
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff.analysis import Analysis
from pipetrace.diff.fault import FaultKind
from pipetrace.diff.match import diff
from pipetrace.diff.replay import NEVER
from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Timeline
from tests.diff.cases import Step

MS = 1_000_000
COSTS = Costs(StageCosts(10 * MS, 12 * MS, 8 * MS), p2p=200_000)
TILES, HOST = 0.02, 10_000  # noise: standard deviation of an action, as a share; of a transfer or gap, ns
SIZES = [("gpipe", 3, 6), ("1f1b", 4, 8), ("zb-h1", 4, 8), ("interleaved", 3, 6), ("zbv", 3, 6), ("chimera", 4, 8),
         ("dualpipev", 2, 8)]  # fmt: skip
# Noise is drawn by hypothesis's seeds: the same ones each time, as one in some thousands looks like a fault.
of_noise = settings(max_examples=25, deadline=None, derandomize=True)
schedules = st.sampled_from(SIZES).map(lambda size: build(*size))
seeds = st.integers(0, 2**32 - 1)


def analysis(schedule: Schedule, measured: Timeline, costs: Costs = COSTS) -> Analysis:
    return Analysis(diff(simulate(schedule, costs), measured), schedule, costs)


def first(step: Step, clean: Step, kind: FaultKind, name: str, amount: float) -> None:
    """The first fault is the one that was put in; its quantity and effect are those of the step.

    What is put in with a factor is what it is over 1: of +50 % that found is 45 to 55 %.
    """
    of = analysis(step.work.schedule, step.timeline())
    fault = of.found.faults[0]
    assert fault.kind is kind, of.found.faults
    assert any(name in found for found in fault.names), of.found.faults
    none = 1 if kind is FaultKind.COMPUTE else 0
    assert fault.amount - none == pytest.approx(amount - none, rel=0.1)
    assert fault.effect == pytest.approx(step.makespan - clean.makespan, rel=0.15, abs=3 * MS)
    assert of.waterfall.residual == 0


@of_noise
@given(schedules, seeds, st.data(), st.floats(1.15, 3))
def test_a_slow_rank(schedule: Schedule, seed: int, data: st.DataObject, factor: float) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    first(clean.slower(clean.work.rank == rank, factor), clean, FaultKind.COMPUTE, f"rank {rank}", factor)


@of_noise
@given(schedules, seeds, st.data(), st.floats(1.15, 3))
def test_a_slow_stage(schedule: Schedule, seed: int, data: st.DataObject, factor: float) -> None:
    stage = data.draw(st.integers(0, schedule.stages - 1))
    of = COSTS.default
    slow = StageCosts(round(of.F * factor), round(of.I * factor), round(of.W * factor))
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    step = Step.noisy(schedule, replace(COSTS, stages={stage: slow}), seed, TILES, HOST)
    first(step, clean, FaultKind.COMPUTE, f"stage {stage}", factor)


@pytest.mark.parametrize("stage", range(4))
def test_a_slow_stage_is_slow_in_both_halves_of_pairs(stage: int) -> None:
    """A pair of DualPipe has its halves from two pipes."""
    schedule, costs = build("dualpipe", 4, 8), Costs(StageCosts(10 * MS, 12 * MS, 8 * MS), p2p=200_000)
    slow = replace(costs, stages={stage: StageCosts(15 * MS, 18 * MS, 12 * MS)})
    measured = simulate(schedule, slow)
    fault = analysis(schedule, measured, costs).found.faults[0]
    assert fault.names == (f"stage {stage}",)
    assert fault.amount == pytest.approx(1.5)
    assert fault.total == pytest.approx(8 * 15 * MS, abs=100)
    assert fault.effect == pytest.approx(measured.makespan - simulate(schedule, costs).makespan, abs=100)


@of_noise
@given(schedules, seeds, st.data(), st.integers(300_000, 5 * MS))
def test_a_slow_link(schedule: Schedule, seed: int, data: st.DataObject, longer: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    link = data.draw(st.sampled_from(np.unique(clean.work.link).tolist()))
    time = clean.inputs.time + np.where(clean.work.link == link, longer, 0)
    a, b = divmod(link, schedule.ranks)
    first(replace(clean, inputs=clean.inputs.but(time=time)), clean, FaultKind.LINK, f"link {a}→{b}", longer)


@of_noise
@given(schedules | st.just(build("gpipe", 3, 2)), seeds, st.data(), st.integers(500_000, 5 * MS))
def test_a_slow_transfer(schedule: Schedule, seed: int, data: st.DataObject, longer: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    t = data.draw(st.integers(0, clean.work.link.size - 1))
    time = clean.inputs.time + np.where(np.arange(clean.work.link.size) == t, longer, 0)
    name = f"transfer {code_text(int(clean.work.receive[t]))}"
    first(replace(clean, inputs=clean.inputs.but(time=time)), clean, FaultKind.LINK, name, longer)


@of_noise
@given(st.sampled_from([("1f1b", 2, 4), ("gpipe", 2, 4), ("zb-h1", 3, 6), ("zbv", 2, 4)]), seeds, st.data())
def test_a_slow_transfer_of_a_recorded_step(size: tuple[str, int, int], seed: int, data: st.DataObject) -> None:
    """How long others took is often not seen, as they came before they were waited for."""
    schedule = build(*size)
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    t = data.draw(st.integers(0, clean.work.link.size - 1))
    time = clean.inputs.time + np.where(np.arange(clean.work.link.size) == t, 4 * MS, 0)
    step = replace(clean, inputs=clean.inputs.but(time=time))
    longer = step.makespan - clean.makespan
    if longer < 2 * MS:
        return  # nobody waits for it, or not for all of it
    fault = analysis(schedule, step.recorded()).found.faults[0]
    assert fault.kind is FaultKind.LINK
    assert f"transfer {code_text(int(clean.work.receive[t]))}" in fault.names
    assert fault.amount == pytest.approx(4 * MS, rel=0.1)
    assert fault.effect == pytest.approx(longer, rel=0.15, abs=MS)


@of_noise
@given(schedules | st.just(build("gpipe", 4, 2)), seeds, st.data())
def test_an_action_that_takes_longer(schedule: Schedule, seed: int, data: st.DataObject) -> None:
    """Also where it is one of two of its kind, that is no slow kind, stage or rank."""
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    row = data.draw(st.integers(0, len(clean.work) - 1))
    slow = clean.slower(np.arange(len(clean.work)) == row, 2)
    longer = int((slow.inputs.duration - clean.inputs.duration)[row])
    name = code_text(int(clean.work.code[row]), int(clean.work.partner[row]))
    first(slow, clean, FaultKind.LONG, name, longer)


@of_noise
@given(schedules, seeds, st.data(), st.integers(300_000, 5 * MS))
def test_sends_posted_late(schedule: Schedule, seed: int, data: st.DataObject, late: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    rank = data.draw(st.sampled_from(np.unique(clean.work.sender).tolist()))
    delay = clean.inputs.delay + np.where(clean.work.sender == rank, late, 0)
    first(replace(clean, inputs=clean.inputs.but(delay=delay)), clean, FaultKind.SEND, f"rank {rank}", late)


@of_noise
@given(schedules, seeds, st.data(), st.integers(500_000, 5 * MS))
def test_an_action_delayed(schedule: Schedule, seed: int, data: st.DataObject, late: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    row = data.draw(st.integers(0, len(clean.work) - 1).filter(lambda row: clean.order.previous[row] < len(clean.work)))
    gap = clean.inputs.gap.copy()
    gap[row] += late
    name = code_text(int(clean.work.code[row]), int(clean.work.partner[row]))
    first(replace(clean, inputs=clean.inputs.but(gap=gap)), clean, FaultKind.DELAYED, name, late)


@of_noise
@given(schedules, seeds, st.data(), st.integers(200_000, 3 * MS))
def test_host_gaps_of_a_rank(schedule: Schedule, seed: int, data: st.DataObject, pause: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    mine = (clean.work.rank == rank) & (clean.order.previous < len(clean.work))
    gap = clean.inputs.gap + np.where(mine, pause, 0)
    first(replace(clean, inputs=clean.inputs.but(gap=gap)), clean, FaultKind.GAP, f"rank {rank}", pause)


@settings(of_noise, max_examples=12)
@given(schedules, seeds, st.data(), st.integers(500_000, 3 * MS), st.floats(1.2, 2))
def test_of_two_faults_the_one_that_costs_more_comes_first(
    schedule: Schedule, seed: int, data: st.DataObject, pause: int, factor: float
) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    one, other = data.draw(st.integers(0, schedule.ranks - 1)), data.draw(st.integers(0, schedule.ranks - 1))
    mine = (clean.work.rank == one) & (clean.order.previous < len(clean.work))
    paused = replace(clean, inputs=clean.inputs.but(gap=clean.inputs.gap + np.where(mine, pause, 0)))
    slow = clean.work.rank == other
    both = paused.slower(slow, factor)
    costs = {
        FaultKind.GAP: both.makespan - clean.slower(slow, factor).makespan,
        FaultKind.COMPUTE: both.makespan - paused.makespan,
    }
    first, second = analysis(schedule, both.timeline()).found.faults[:2]
    assert {first.kind, second.kind} == costs.keys()
    assert costs[first.kind] > costs[second.kind] - 3 * MS
    for fault in (first, second):
        if fault.kind is FaultKind.GAP:
            assert fault.amount == pytest.approx(pause, rel=0.1)
        else:
            assert fault.amount - 1 == pytest.approx(factor - 1, rel=0.1)
        assert f"rank {one if fault.kind is FaultKind.GAP else other}" in fault.names


@of_noise
@given(schedules, seeds, st.data())
def test_receives_posted_late(schedule: Schedule, seed: int, data: st.DataObject) -> None:
    """One rank posts each receive only when all that comes before its use has run."""
    costs = replace(COSTS, p2p=4 * MS)
    clean = Step.noisy(schedule, costs, seed, TILES, HOST)
    work = clean.work
    rank = data.draw(st.sampled_from(np.unique(work.receiver).tolist()))
    mine = work.receiver == rank
    before = clean.order.previous[work.consumer]
    anchor = np.where(mine & (before < len(work)), before, -1)
    step = replace(clean, inputs=clean.inputs.but(anchor=anchor, after=np.where(anchor >= 0, 0, NEVER)))
    timeline = step.timeline()
    of = analysis(schedule, timeline, costs)
    moved = timeline.where(timeline.lane != Lane.COMPUTE)
    posted = dict(zip(moved.code.tolist(), moved.posted.tolist(), strict=True))
    pairs = zip(work.receive[mine].tolist(), work.send[mine].tolist(), strict=True)
    late = [ns for receive, send in pairs if (ns := posted[receive] - posted[send]) > of.case.floor]
    longer = step.makespan - clean.makespan
    if len(late) < 4 or longer < 6 * MS:
        return  # the rank waits for its data anyway
    fault = of.found.faults[0]
    assert fault.kind is FaultKind.RECEIVE, of.found.faults
    assert fault.names == (f"rank {rank}",)
    assert fault.amount == pytest.approx(float(np.median(late)), rel=0.1)
    assert fault.effect == pytest.approx(longer, rel=0.15, abs=3 * MS)


@of_noise
@given(schedules, seeds, st.data(), st.integers(500_000, 5 * MS), st.sampled_from((-1, 1)))
def test_a_clock_that_is_off(schedule: Schedule, seed: int, data: st.DataObject, off: int, way: int) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    timeline = clean.timeline()
    by = np.where(timeline.rank == rank, way * off, 0)
    columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner")}
    for name in ("start", "end", "posted", "waited"):
        column = getattr(timeline, name)
        columns[name] = np.where(column == np.iinfo(np.int64).min, column, column + by)
    skewed = Timeline.from_columns(schedule.ranks, columns)
    of = analysis(schedule, skewed)
    fault = of.found.faults[0]
    assert fault.kind is FaultKind.CLOCK
    assert of.clocks is not None
    if schedule.ranks > 2:
        assert set(of.clocks.ahead) >= {rank}
        assert of.clocks.ahead[rank] == pytest.approx(way * off, rel=0.1)
        assert all(abs(ns) <= 0.1 * off for other, ns in of.clocks.ahead.items() if other != rank)
    else:  # of two clocks nobody knows which is right
        assert abs(fault.amount) == pytest.approx(off, rel=0.1)
    assert fault.effect == skewed.makespan - of.measured.makespan
    assert of.measured.makespan == pytest.approx(clean.makespan, abs=0.1 * off + 2 * HOST)


@of_noise
@given(schedules.filter(lambda s: bool((s.code & 31 == Kind.W).any())), seeds, st.data())
def test_a_missing_weight_gradient(schedule: Schedule, seed: int, data: st.DataObject) -> None:
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    row = data.draw(st.sampled_from(np.flatnonzero(clean.work.kind == Kind.W).tolist()))
    gone = np.arange(len(clean.work)) == row
    inputs = clean.inputs
    step = replace(
        clean,
        inputs=inputs.but(
            duration=np.where(gone, 0, inputs.duration), gap=np.where(gone, 0, inputs.gap), present=~gone
        ),
    )
    first(step, clean, FaultKind.MISSING, code_text(int(clean.work.code[row])), 1)


@of_noise
@given(schedules, seeds, st.data())
def test_two_actions_that_changed_places(schedule: Schedule, seed: int, data: st.DataObject) -> None:
    lists = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    at = data.draw(st.integers(0, len(lists[rank]) - 2))
    mine = lists[rank]
    mine[at], mine[at + 1] = mine[at + 1], mine[at]
    try:
        other = Schedule.from_actions(schedule.name, schedule.placement, schedule.microbatches, lists).validate()
    except ScheduleError:
        return
    clean = Step.noisy(schedule, COSTS, seed, TILES, HOST)
    row = int(schedule.first[rank]) + at
    position = np.arange(len(clean.work))
    position[[row, row + 1]] = position[[row + 1, row]]
    assert len(other) == len(schedule)
    step = replace(clean, order=clean.work.ordered(position))
    first(step, clean, FaultKind.ORDER, str(mine[at]), 1)


@of_noise
@given(schedules, seeds)
def test_nothing_is_found_where_nothing_is(schedule: Schedule, seed: int) -> None:
    of = analysis(schedule, Step.noisy(schedule, COSTS, seed, TILES, HOST).timeline())
    assert [fault for fault in of.found.faults if of.found.is_felt(fault)] == []


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches"),
    [("interleaved", 5, 15), ("looped-bfs", 5, 10), ("interleaved-zb", 4, 6), ("1f1b", 2, 4), ("moe-1f1b", 4, 6)],
)
def test_a_link_that_nobody_waits_for_is_not_slow(name: str, ranks: int, microbatches: int) -> None:
    """From the last rank to the first data comes long before its use: when is not recorded, only when it was used."""
    step = Step.noisy(build(name, ranks, microbatches), COSTS, 1, TILES, HOST)
    of = analysis(step.work.schedule, step.recorded())
    assert of.found.faults == ()
    assert (of.seen.inputs.time < MS).all()
