"""Only whole steps are measured, and which were left out is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipetrace
from pipetrace.action import parse_action
from pipetrace.diff_run import diff_traces
from pipetrace.fit import fit
from pipetrace.report.recording import recording_summary
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.trace.reading.model import Compute, RankStep
from pipetrace.trace.torch_csv import write_csv
from pipetrace.trace.torch_profiler import read_recording
from pipetrace.trace.whole_steps import judge, left_out
from tests.trace.recorded import dump, labels, trace_of

SECOND = 10**9


def ideal_of(schedule: Schedule) -> Timeline:
    return pipetrace.simulate(schedule, pipetrace.parse_costs("F=1,B=2"))


def write(
    folder: Path, timeline: Timeline, steps: int, keep: Callable[[int, int, dict[str, Any]], bool], **more: Any
) -> None:
    """Traces of some steps, of which what `keep(rank, step, event)` says is left."""
    folder.mkdir(exist_ok=True)
    for rank in range(timeline.ranks):
        events = [
            one
            for step in range(steps)
            for one in labels(timeline, rank, step, step * SECOND)
            if keep(rank, step, one) or one["name"].startswith("ProfilerStep")
        ]
        (folder / f"rank{rank}.json").write_text(dump(trace_of(rank, timeline.ranks, events, **more)))


def microbatch(one: dict[str, Any]) -> int:
    return int(one["name"][-1]) if one["name"].startswith(("PP:", "WAIT:", "POST:")) else -1


def test_a_crash_in_the_middle_of_a_step_leaves_it_out(tmp_path: Path) -> None:
    # The partial steps are short, so that one of them would be the median.
    timeline = ideal_of(pipetrace.build("1f1b", 2, 4))
    write(tmp_path, timeline, 5, lambda _, step, one: step < 2 or microbatch(one) < step - 2)
    recording = read_recording([tmp_path])
    assert recording.step_names == ("ProfilerStep#0", "ProfilerStep#1")
    assert [step.makespan for step in recording.steps] == [timeline.makespan] * 2
    assert set(recording.left_out) == {"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"}
    (line,) = [line for line in recording.missing if "left out" in line]
    assert line.startswith("3 of 5 steps are not whole and were left out: ProfilerStep#2 lacks 16 actions of 2 ranks (")
    assert recording.missing == (line,)  # nothing more is said of them
    assert len(recording_summary(recording)["steps"]) == 2
    assert {spread.count for spread in fit(recording.steps).actions.values()} == {8}
    # The counts are over all steps.
    assert recording.found[0].counts["F"] == 4 + 4 + 0 + 1 + 2
    assert recording.steps_found == 5
    # Who asks for a part of a step gets it, and is told.
    asked = read_recording([tmp_path], steps=["3"])
    assert asked.step_names == ("ProfilerStep#3",)
    assert asked.missing[0].startswith("ProfilerStep#3 is not whole: it lacks 12 actions of 2 ranks (0F1, 0B1")


def test_what_a_rank_lacks_makes_the_step_partial(tmp_path: Path) -> None:
    timeline = ideal_of(pipetrace.build("zb-h1", 3, 4))
    write(tmp_path, timeline, 3, lambda rank, step, one: (rank, step, one["name"]) != (1, 1, "PP:1W3"))
    recording = read_recording([tmp_path])
    assert recording.left_out == {"ProfilerStep#1": "lacks 1 action of rank 1 (1W3)"}


def test_where_none_is_whole_the_most_complete_is_read(tmp_path: Path) -> None:
    timeline = ideal_of(pipetrace.build("1f1b", 2, 4))
    write(tmp_path, timeline, 2, lambda rank, step, one: (rank, one["name"]) != (1, "PP:1B3") and (step or rank) > 0)
    recording = read_recording([tmp_path])
    assert recording.step_names == ("ProfilerStep#1",)
    assert recording.missing[0].startswith(
        "none of the 2 steps is whole; the most complete, ProfilerStep#1, lacks 1 action of rank 1 (1B3): "
    )


def test_the_schedule_tells_what_nothing_else_can(tmp_path: Path) -> None:
    plan = pipetrace.build("1f1b", 2, 4)
    write(tmp_path, ideal_of(plan), 1, lambda *_: True)
    assert read_recording([tmp_path], plan).missing == ()
    # Of a longer step these would be the first microbatches; all that was recorded agrees with itself.
    longer = pipetrace.build("1f1b", 2, 8)
    assert read_recording([tmp_path]).missing == ()
    (line,) = read_recording([tmp_path], longer).missing
    assert line.startswith("the step is not whole: it lacks 16 actions of 2 ranks (0F4, 0B4, 0F5, ...)")
    # As it does where it lies beside the traces, as in a run's folder.
    write_csv(longer, tmp_path / "schedule.csv")
    assert read_recording([tmp_path]).missing == (line,)
    assert read_recording([tmp_path / "rank0.json", tmp_path / "rank1.json"]).missing == (line,)
    (tmp_path / "schedule.csv").write_text("no schedule")
    assert read_recording([tmp_path]).missing == ()
    assert diff_traces([tmp_path], plan).diff.measured.makespan > 0


def step_of(*actions: str) -> RankStep:
    codes = [parse_action(action).code for action in actions]
    return RankStep(0, [Compute(code, 0, at, at + 1) for at, code in enumerate(codes)])


def test_a_smaller_step_is_left_out_and_a_larger_one_not() -> None:
    small, large = step_of("0F0", "0B0"), step_of("0F0", "0B0", "0F1", "0B1")
    judged = judge({"a": {0: large}, "b": {0: small}, "c": {0: large}}, [0], 1)
    assert [of.is_whole for of in judged.values()] == [True, False, True]
    judged = judge({"a": {0: small}, "b": {0: small}, "c": {0: large}}, [0], 1)
    assert all(of.is_whole for of in judged.values())


def test_halves_of_a_backward_and_a_first_stage_without_input_gradient() -> None:
    step = step_of("0F0", "0F1", "0W0", "0W1")
    assert judge({"a": {0: step}}, [0], 1)["a"].is_whole
    mixed = step_of("0F0", "0F1", "0B0", "0I1", "0W1")
    assert judge({"a": {0: mixed}}, [0], 1)["a"].is_whole
    lacking = judge({"a": {0: step_of("0F0", "0F1", "0B0", "0I1")}}, [0], 1)["a"]
    assert str(lacking) == "lacks 1 action of rank 0 (0W1)"
    assert left_out({"a": lacking}) == (
        (), ("the step is not whole: it lacks 1 action of rank 0 (0W1): figures are of a part of a step",)
    )  # fmt: skip
    forwards = step_of("0F0", "0F1")  # an evaluation has no backward
    assert judge({"a": {0: forwards}}, [0], 1)["a"].is_whole
