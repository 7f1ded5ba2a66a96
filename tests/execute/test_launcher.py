"""Starting from a plain script, and what happens when a process in between goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import RunError
from pipetrace.execute import RunConfig, launcher, run
from pipetrace.execute.folder import claim
from pipetrace.execute.job import Job
from pipetrace.execute.launcher import Launcher
from pipetrace.execute.runner import describe
from pipetrace.execute.signals import is_stopped
from tests.execute import faulty
from tests.execute.processes import descendants, end_within, own_descendants

MS = 1_000_000
ROOT = Path(pipetrace.__file__).parent.parent

# No guard around it: a process that imported the caller's main module again would start a run of its own.
SCRIPT = """
import sys
from pathlib import Path
import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute import RunConfig, run

print("once", flush=True)
config = RunConfig(costs=Costs(StageCosts(10**6, 10**6, 10**6)), steps=int(sys.argv[2]))
run(pipetrace.build("1f1b", 2, 2), config, Path(sys.argv[1]), lambda text: print(text, flush=True))
print("torch" in sys.modules, flush=True)
"""


def start(tmp_path: Path, steps: int) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "run"), str(steps)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_plain_script_needs_no_guard(tmp_path: Path) -> None:
    with start(tmp_path, 2) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    lines = output.splitlines()
    assert lines.count("once") == 1
    assert lines[-2:] == ["step 2 of 2 done", "False"]


def test_nothing_outlives_a_caller_that_is_killed(tmp_path: Path) -> None:
    with start(tmp_path, 1_000_000) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step "):
                break
        below = descendants(process.pid)
        assert len(below) == 3  # the supervisor and two ranks
        process.kill()
        assert end_within(below, 60)


def test_a_supervisor_that_is_killed_takes_the_ranks_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetrace.execute.launcher._CLOSING_S", 120.0)
    below: set[int] = set()

    def kill(text: str) -> None:
        # More steps may have been told before it was killed.
        if text.startswith("step ") and not below:
            below.update(own_descendants())
            parents = {pid for pid in below if descendants(pid)}
            assert len(parents) == 1
            os.kill(parents.pop(), signal.SIGKILL)

    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=1_000_000)
    with pytest.raises(RunError, match="the process that starts the ranks was killed by SIGKILL"):
        run(pipetrace.build("1f1b", 2, 2), config, tmp_path, kill)
    assert len(below) == 3
    assert end_within(below, 60)


def test_a_supervisor_that_is_stopped_does_not_hang_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    below: set[int] = set()

    def stop(text: str) -> None:
        if text.startswith("step ") and not below:
            below.update(own_descendants())
            (parent,) = (pid for pid in below if descendants(pid))
            os.kill(parent, signal.SIGSTOP)
            while not is_stopped(parent):
                time.sleep(0.01)

    # Its silence is only long from when it cannot say anything any more.
    receive = launcher._receive
    monkeypatch.setattr(
        "pipetrace.execute.launcher._receive", lambda control, patience: receive(control, 0.5 if below else patience)
    )
    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=1_000_000)
    with pytest.raises(RunError, match="the process that starts the ranks is stopped") as caught:
        run(pipetrace.build("1f1b", 2, 2), config, tmp_path / "run", stop)
    assert "SIGCONT" in caught.value.hint
    assert len(below) == 3
    assert end_within(below, 60)
    assert not list((tmp_path / "temp").iterdir())


def test_a_run_that_is_interrupted_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to be killed, for which the caller would wait long."""
    killed: list[int] = []
    monkeypatch.setattr("pipetrace.execute.launcher._kill_group", lambda process: killed.append(process.pid))
    monkeypatch.setattr("pipetrace.execute.launcher._END_S", 120.0)  # for a busy machine

    def interrupt(text: str) -> None:
        if text.startswith("step "):
            raise KeyboardInterrupt

    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=1_000_000)
    with pytest.raises(KeyboardInterrupt):
        run(pipetrace.build("1f1b", 2, 2), config, tmp_path, interrupt)
    assert not killed
    assert not own_descendants()


def test_a_supervisor_that_crashes_is_not_called_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetrace.execute.launcher._CLOSING_S", 120.0)
    # The line closes a while before the process ends.
    start = "import sys, os, time; os.close(int(sys.argv[1])); time.sleep(0.3); sys.exit('a crash')"
    monkeypatch.setattr("pipetrace.execute.launcher._START", start)
    with pytest.raises(RunError, match="the process that starts the ranks ended with status 1: a crash"):
        run(pipetrace.build("1f1b", 2, 2), RunConfig(), tmp_path)


def test_an_interpreter_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetrace.execute.launcher._START", "raise SystemExit('out of order')")
    with pytest.raises(RunError, match="the process that starts the ranks ended with status 1: out of order"):
        run(pipetrace.build("1f1b", 2, 2), RunConfig(), tmp_path)
    assert not own_descendants()


def test_several_runs_need_torch_once_and_a_broken_one_ends_them(tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 2, 4)
    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=3, warmup=0, check=True)
    supervisors: list[int] = []
    with Launcher() as of:
        for number in range(2):
            result = run(schedule, config, tmp_path / str(number), launcher=of)
            assert result.check is not None
            assert result.check.passed
            supervisors += own_descendants()
        assert supervisors[1:] == supervisors[:1]
        told: list[str] = []
        info = describe(schedule, config)
        with claim(tmp_path / "broken", schedule, info) as claimed:
            job = Job(schedule, config, info, claimed, f"{faulty.__name__}:raising", 60.0)
            with pytest.raises(RunError, match="raised ValueError"):
                of.run(job, told.append)
        assert not own_descendants()
        # What was printed before is not lost.
        assert "rank 1: about to break" in told
