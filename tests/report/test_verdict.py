from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipetrace.action import NO_ACTION, Kind, code_kind
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, Fault, FaultKind, diff
from pipetrace.report.verdict import verdict
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from tests.diff.cases import Step

MS = 1_000_000
COSTS = Costs(StageCosts(10 * MS, 12 * MS, 8 * MS), p2p=200_000)


def told(step: Step, *, one_clock: bool = True) -> list[str]:
    schedule = step.work.schedule
    return verdict(Analysis(diff(simulate(schedule, COSTS), step.timeline()), schedule, COSTS, one_clock=one_clock))


def clean(name: str = "1f1b") -> Step:
    return Step.noisy(build(name, 4, 8), COSTS, 1, 0.005, 5_000)


def test_a_slow_rank_with_its_size_and_its_twin() -> None:
    step = clean()
    slow = step.slower(step.work.rank == 2, 1.5)
    first, *_, figures = told(slow)
    assert first.startswith("Rank 2's compute takes 1.50 times as long as the costs say (16 actions, +1")
    assert "; seen from outside, a slow stage 2 would look the same (rank 2 holds only that stage): " in first
    assert " % of the step, which would take " in first
    assert figures.startswith("The ideal takes 333 ms, the step 4")
    assert "compute +" in figures
    assert "noise ±" in figures
    assert "transfer" not in first


def test_a_kind_that_is_slower_than_the_rest_of_its_slow_rank() -> None:
    step = clean()
    on_rank = step.work.rank == 2
    both = step.slower(on_rank, 1.5).slower(on_rank & (code_kind(step.work.code) == Kind.F), 1.2)
    first, second, *_ = told(both)
    assert first.startswith("Rank 2's compute takes 1.50 times as long as the costs say (16 actions")
    assert second.startswith("F of stage 2 takes 1.20 times as long on top of rank 2's 1.50 (8 actions")


def test_two_slow_ranks_that_cover_for_each_other() -> None:
    """Without one of them the other still holds the step up, so that their effects sum to less than what both cost."""
    step = clean()
    both = step.slower(step.work.rank == 1, 1.5).slower(step.work.rank == 2, 1.4)
    first, second, third, *_ = told(both)
    assert {first[:14], second[:14]} == {"Rank 1's compu", "Rank 2's compu"}
    assert third.startswith("One by one these would save the smaller part: the step is 1")


@pytest.mark.parametrize("before", [False, True])
def test_another_order_is_told_against_what_it_is_held_against(before: bool) -> None:
    step = clean("zb-h1")
    position = np.arange(len(step.work))
    row = [str(action) for action in step.work.schedule.actions(0)].index("0W5")
    position[[row, row + 1]] = position[[row + 1, row]]
    other = replace(step, order=step.work.ordered(position))
    schedule = step.work.schedule
    reference = step.timeline() if before else simulate(schedule, COSTS)
    sentences = " ".join(verdict(Analysis(diff(reference, other.timeline()), schedule, COSTS, before=before)))
    than = "before" if before else "in the schedule"
    assert f" ran at another place than {than}: " in sentences


def test_the_largest_single_cause_is_the_one_that_costs_the_step_most() -> None:
    noisy = Step.noisy(build("1f1b", 4, 8), COSTS, 3, 0.5, 5_000)
    of = Analysis(diff(simulate(noisy.work.schedule, COSTS), noisy.timeline()), noisy.work.schedule, COSTS)
    unfelt = Fault(FaultKind.LONG, ("3F1",), 9 * MS, 1, 9 * MS, noisy.inputs, effect=0)
    small = Fault(FaultKind.LONG, ("2F1",), MS, 1, MS, noisy.inputs, effect=MS)
    for faults, said in (((unfelt,), False), ((unfelt, small), True)):
        vars(of)["found"] = replace(of.found, faults=faults)
        sentences = verdict(of)
        assert sentences[0].startswith("No single cause stands out over the noise, but the step is ")
        is_said = "Of single causes the largest is that 2F1 takes 1 ms longer than its like (1 ms of the step)."
        assert (sentences[1] == is_said) is said
        assert not any("3F1" in sentence for sentence in sentences)


def test_a_slow_link_late_sends_and_gaps() -> None:
    step = clean()
    work, inputs = step.work, step.inputs
    link = np.where((work.sender == 1) & (work.receiver == 2), 5 * MS, 0)
    first = told(replace(step, inputs=inputs.but(time=inputs.time + link)))[0]
    assert first.startswith("Link 1→2 takes 5 ms more for a transfer than other links, over the ideal's 0.2 ms")
    late = np.where(work.sender == 0, 3 * MS, 0)
    first = told(replace(step, inputs=inputs.but(delay=inputs.delay + late)))[0]
    assert first.startswith("Rank 0 posts sends 3 ms after what they carry is made (8 sends)")
    gap = np.where((work.rank == 3) & (step.order.previous < len(work)), 2 * MS, 0)
    first = told(replace(step, inputs=inputs.but(gap=inputs.gap + gap)))[0]
    assert first.startswith("Rank 3 pauses 2 ms more than other ranks before each action though all it needs is there")


@pytest.mark.parametrize("rank", [None, 1])
def test_pairs_are_several(rank: int | None) -> None:
    step = clean("dualpipev")
    paired = step.work.partner != NO_ACTION
    first = told(step.slower(paired & ((step.work.rank == rank) | (rank is None)), 1.3))[0]
    whose = "All overlapped pairs" if rank is None else "Overlapped pairs of rank 1"
    assert first.startswith(f"{whose} take 1.30 times as long as the costs say (")


def test_one_rank_is_not_held_against_others() -> None:
    step = Step.noisy(build("1f1b", 1, 8), COSTS, 1, 0.005, 5_000)
    first = told(step.slower(step.work.rank == 0, 1.5))[0]
    assert "seen from outside, a slow stage 0 would look the same (rank 0 holds only that stage): " in first
    gap = np.where(step.order.previous < len(step.work), 2 * MS, 0)
    first = told(replace(step, inputs=step.inputs.but(gap=step.inputs.gap + gap)))[0]
    assert first.startswith("Rank 0 pauses 2 ms before each action though all it needs is there (")
    assert "all ranks" not in first


def test_what_shortens_the_step_is_told_after_what_lengthens_it() -> None:
    step = clean()
    work, inputs = step.work, step.inputs
    quick = step.slower(work.rank == 1, 0.5)
    gap = np.where((work.rank == 3) & (step.order.previous < len(work)), MS, 0)
    both = replace(quick, inputs=quick.inputs.but(gap=inputs.gap + gap))
    first, second, *_ = told(both)
    assert first.startswith("Rank 3 pauses 0.999 ms more")
    assert second.startswith("Rank 1's compute takes only 0.50 times")
    assert ": the step is shorter by " in second
    assert abs(effect(both, 1)) > effect(both, 0) > 0 > effect(both, 1)
    assert told(quick)[0].startswith("Rank 1's compute takes only 0.50 times")
    # Held against a step before that took longer, it is the other way round.
    schedule = work.schedule
    got_shorter = Analysis(diff(step.timeline(), both.timeline()), schedule, COSTS, before=True)
    assert [fault.effect < 0 for fault in got_shorter.found.faults[:2]] == [True, False]


def effect(step: Step, at: int) -> int:
    schedule = step.work.schedule
    return Analysis(diff(simulate(schedule, COSTS), step.timeline()), schedule, COSTS).found.faults[at].effect


def test_nothing_stands_out() -> None:
    step = clean()
    sentences = told(step)
    assert sentences[0].startswith("Nothing ")
    assert len(sentences) == 2


def skewed() -> Timeline:
    """A step on whose rank 1 all happens 2 ms later by its clock."""
    timeline = clean().timeline()
    by = np.where(timeline.rank == 1, 2 * MS, 0)
    columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner")}
    for name in ("start", "end", "posted", "waited"):
        column = getattr(timeline, name)
        columns[name] = np.where(column == np.iinfo(np.int64).min, column, column + by)
    return Timeline.from_columns(4, columns)


def test_clocks_that_differ_come_first() -> None:
    schedule = build("1f1b", 4, 8)
    first = verdict(Analysis(diff(simulate(schedule, COSTS), skewed()), schedule, COSTS))[0]
    assert first.startswith("The ranks' clocks disagree: rank 1's is 2")
    assert "corrected clocks" in first


def test_one_clock_cannot_differ_from_itself() -> None:
    """What was received before it was sent then was another message than its label says."""
    schedule = build("1f1b", 4, 8)
    of = Analysis(diff(simulate(schedule, COSTS), skewed()), schedule, COSTS, same_clock=True)
    sentences = verdict(of)
    assert of.clocks is None
    assert not any("clocks" in sentence for sentence in (sentences[0], sentences[-1]))
    (swapped,) = [sentence for sentence in sentences if "messages met in another order" in sentence]
    count, worst = of.swapped
    assert swapped.startswith(f"{count} transfers were received before they were sent, by up to 1.")
    assert count > 1
    assert 0 < worst < 2 * MS
    agreeing = Analysis(diff(simulate(schedule, COSTS), clean().timeline()), schedule, COSTS, same_clock=True)
    assert agreeing.swapped == (0, 0)


@pytest.mark.parametrize("gone", ["2B3"])
def test_missing_work(gone: str) -> None:
    step = clean()
    timeline = step.timeline()
    keep = np.array([str(tile.action) != gone for tile in timeline])
    schedule = step.work.schedule
    first = verdict(Analysis(diff(simulate(schedule, COSTS), timeline.where(keep)), schedule, COSTS))[0]
    assert f"{gone} is missing (20 ms of work by the costs)" in first


def test_clocks_that_were_not_aligned_forbid_a_verdict() -> None:
    (only,) = told(clean(), one_clock=False)
    assert "clocks were not aligned" in only


def test_where_no_single_cause_stands_out_it_says_by_how_much_the_step_is_over_the_ideal() -> None:
    """Every action varies, transfers as well: no rank, stage or link more than another, and all of it costs."""
    noisy = Step.noisy(build("1f1b", 4, 8), COSTS, 3, 0.5, 5_000)
    of = Analysis(diff(simulate(noisy.work.schedule, COSTS), noisy.timeline()), noisy.work.schedule, COSTS)
    longer = of.of.measured.makespan - of.waterfall.base
    assert longer > of.noise.makespan
    assert not any(of.found.is_felt(fault) for fault in of.found.faults)
    first = verdict(of)[0]
    assert first.startswith("No single cause stands out over the noise, but the step is ")
    assert f" ({100 * longer / of.waterfall.base:.1f} %) over the ideal, most of it compute (+" in first


@pytest.mark.parametrize(("seed", "most"), [(0, False), (1, True)])
def test_where_causes_explain_little_it_says_what_else_there_is(seed: int, most: bool) -> None:
    """A pause of 25 ms: most of what a step is over its ideal, or less than what varying actions cost it."""
    noisy = Step.noisy(build("1f1b", 4, 8), COSTS, seed, 0.15, 5_000)
    gap = np.where(np.arange(len(noisy.work)) == len(noisy.work) - 1, 25 * MS, 0)
    step = replace(noisy, inputs=noisy.inputs.but(gap=noisy.inputs.gap + gap))
    first, second, *_ = told(step)
    assert first.startswith("3B7 starts 25 ms late though all it needs is there: 2")
    assert second.startswith("That is the smaller part: the step is ") is not most
    assert most or " over the ideal, most of it compute (+" in second
