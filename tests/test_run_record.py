from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pipetrace
from pipetrace.costs import Costs
from pipetrace.errors import TraceError
from pipetrace.run_record import check_before, contradictions
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.trace.recording import replica_makespans
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.torch_profiler import Recording, read_recording
from tests.trace.recorded import write_run


def recorded(folder: Path, name: str = "1f1b", *, says: bool = False) -> Recording:
    ideal = pipetrace.simulate(pipetrace.build(name, 2, 4), pipetrace.parse_costs("F=1,B=2"))
    info = RunInfo(name, 2, 4, "own loop", Costs(), False, 1)
    write_run(folder, ideal, pipetrace={"schema": 1, "run": info.to_dict()} if says else {})
    return read_recording([folder])


def test_what_a_run_says_of_itself_is_held_against_what_is_said(tmp_path: Path) -> None:
    recording = recorded(tmp_path, says=True)
    assert contradictions(pipetrace.build("1f1b", 2, 4), recording) == ()
    for name, ranks, batches in (("gpipe", 2, 4), ("1f1b", 4, 4), ("1f1b", 2, 8)):
        (line,) = contradictions(pipetrace.build(name, ranks, batches), recording)
        assert line.startswith(
            f"the run says that it was 1f1b, p = 2, m = 4, and not {name}, p = {ranks}, m = {batches}"
        )


def test_what_others_recorded_is_held_against_its_actions(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    assert contradictions(pipetrace.build("1f1b", 2, 4), recording) == ()
    assert contradictions(pipetrace.build("zb-h1", 2, 4), recording) == ()  # a split backward is one
    (line,) = contradictions(pipetrace.build("1f1b", 2, 3), recording)
    assert line == (
        "4 of 16 actions that were recorded are none of 1f1b with p = 2, m = 3 (0F3, 0B3, 1F3, ...)"
    )  # fmt: skip
    assert contradictions(pipetrace.build("1f1b", 4, 4), recording) == (
        "1f1b was named with p = 4, but 2 ranks ran",
    )  # fmt: skip


def test_where_nothing_fits_it_is_an_error(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    (step,) = recording.steps
    last_stage = replace(recording, steps=(step.where(step.rank == 1),))
    with pytest.raises(TraceError, match="nothing that was recorded is an action of gpipe with p = 1, m = 4"):
        contradictions(pipetrace.build("gpipe", 1, 4), last_stage)


def of(schedule: Schedule, source: str, *, says: str | None = None) -> Recording:
    """A recording of one step, by a run that names its schedule or by traces of others."""
    run = None if says is None else RunInfo(says, schedule.ranks, schedule.microbatches, "sleep", Costs(), True, 1)
    return Recording(source, schedule.ranks, (simulate(schedule),), ("ProfilerStep#1",), (), (), (), run, True)


@pytest.mark.parametrize(
    ("earlier", "says", "named"),
    [
        (
            pipetrace.build("zb-h1", 4, 8),
            "zb-h1",
            "OLD ran another schedule (zb-h1, p = 4, m = 8) than NEW (1f1b, p = 4, m = 8)",
        ),
        (pipetrace.build("1f1b", 2, 8), "1f1b", "(1f1b, p = 2, m = 8)"),
        (pipetrace.build("1f1b", 4, 4), "1f1b", "(1f1b, p = 4, m = 4)"),
        (pipetrace.build("1f1b", 2, 8), None, "(p = 2, other actions)"),
        (pipetrace.build("interleaved", 4, 24), None, "(p = 4, other actions)"),
    ],
)
def test_a_run_of_another_schedule_is_not_before(earlier: Schedule, says: str | None, named: str) -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    with pytest.raises(TraceError) as raised:
        check_before(schedule, of(schedule, "NEW", says="1f1b"), of(earlier, "OLD", says=says))
    assert named in raised.value.message
    assert "its own ideal" in str(raised.value.hint)


@pytest.mark.parametrize("says", ["1f1b", "order_of_my_own", None])
def test_an_earlier_run_of_the_same_schedule_is(says: str | None) -> None:
    """A list that was read from a file has the file's name, which tells nothing."""
    schedule = pipetrace.build("1f1b", 4, 8)
    check_before(schedule, of(schedule, "NEW", says="1f1b"), of(schedule, "OLD", says=says))


def test_each_replicas_median_step() -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    assert replica_makespans(of(schedule, "RUN")) == [simulate(schedule).makespan]
