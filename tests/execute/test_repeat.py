from __future__ import annotations

from pathlib import Path

import pytest

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import OutputError, RunError
from pipetrace.execute import Repeats, RunConfig, repeat
from pipetrace.trace.run_folder import RUN_FILE, read_run_info

MS = 1_000_000
QUICK = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=2, warmup=0, check=True)


def test_each_run_has_its_folder_and_the_figures_are_theirs(tmp_path: Path) -> None:
    schedule = pipetrace.build("gpipe", 2, 2)
    told: list[str] = []
    of = repeat(schedule, QUICK, tmp_path, 2, told.append)
    assert [result.folder for result in of.runs] == [tmp_path / "1", tmp_path / "2"]
    assert all(result.check is not None and result.check.passed for result in of.runs)
    assert len(of.makespans) == 2
    assert min(of.makespans) >= pipetrace.simulate(schedule, QUICK.costs).makespan
    first, second = (read_run_info(result.folder).started for result in of.runs)
    assert first < second
    assert [line for line in told if line.startswith("run ")] == ["run 1 of 2", "run 2 of 2"]
    # The earlier runs are replaced; more of them than there will be would be mistaken for these.
    with pytest.raises(OutputError, match="holds run 2 of an earlier repetition"):
        repeat(schedule, QUICK, tmp_path, 1)


def test_median_and_spread() -> None:
    assert (Repeats((), (5,)).median, Repeats((), (5,)).spread) == (5, 0.0)
    assert Repeats((), (9, 4, 6, 5, 1)).median == 5
    assert Repeats((), (20, 10, 16, 12)).median == 14
    assert Repeats((), (20, 10, 15, 13)).spread == 10 / 14
    assert (Repeats((), (4, 7)).median, type(Repeats((), (4, 6)).median)) == (6, int)


def test_what_cannot_be_repeated_is_refused(tmp_path: Path) -> None:
    schedule = pipetrace.build("gpipe", 2, 2)
    with pytest.raises(RunError, match="0 runs"):
        repeat(schedule, QUICK, tmp_path, 0)
    (tmp_path / RUN_FILE).write_text("")
    with pytest.raises(OutputError, match="holds a single run"):
        repeat(schedule, QUICK, tmp_path, 2)
