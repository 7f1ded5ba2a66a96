"""What breaks in a rank, seen from the caller: one error that names it, and nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pytest

import pipetrace
from pipetrace.action import parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import RunError
from pipetrace.execute import launcher, supervisor
from pipetrace.execute.board import Phase
from pipetrace.execute.config import RunConfig
from pipetrace.execute.folder import claim, error_name
from pipetrace.execute.job import Failed, Job, Step
from pipetrace.execute.launcher import Progress, launch
from pipetrace.execute.result import CheckReport, RankCheck
from pipetrace.execute.runner import describe
from pipetrace.execute.supervisor import Supervisor, _Rank
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import trace_name
from pipetrace.waiting import Wait
from tests.execute import faulty
from tests.execute.processes import own_descendants

MS = 1_000_000
STALL_S = 0.3

# Put into the process that watches the ranks. Its clock for stalls stands still until a rank says that nothing moves
# any more, and it gives them all the time that a busy machine may take: looked at is what it does, not how fast.
WATCH = """
from pathlib import Path
from pipetrace.execute import supervisor
from pipetrace.execute.board import Board
from pipetrace.execute.signals import is_stopped

supervisor._PATIENCE_S, supervisor._AGAIN_S, supervisor._LIMIT_S = {patience}, 100.0, 200.0
ticks, moved = Board.ticks.fget, iter(range(-2, -(10**9), -1))

def calm():
    try:
        text = Path({path!r}).read_text()
    except FileNotFoundError:
        return False
    return not text or is_stopped(int(text))

Board.ticks = property(lambda board: ticks(board) if calm() else next(moved))
"""


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes supervisors watch as above, with so many seconds for a rank to obey."""
    path = str(tmp_path_factory.mktemp("calm") / "calm")
    monkeypatch.setenv(faulty.CALM, path)
    monkeypatch.setattr("pipetrace.execute.launcher._SILENCE_S", 120.0)
    start = launcher._START

    def watch(patience: float) -> None:
        monkeypatch.setattr(
            "pipetrace.execute.launcher._START",
            start.replace("main(control)", WATCH.format(patience=patience, path=path) + "main(control)"),
        )

    watch(100.0)
    return watch


def start(
    schedule: Schedule, config: RunConfig, folder: Path, factory: str, stall_s: float, progress: Progress = print
) -> tuple[RankCheck, ...]:
    info = describe(schedule, config)
    with claim(folder, schedule, info) as claimed:
        return launch(Job(schedule, config, info, claimed, factory, stall_s), progress)


def attempt(folder: Path, fault: str, config: RunConfig | None = None, stall_s: float = 60.0) -> tuple[RankCheck, ...]:
    config = config or RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=3, warmup=0)
    schedule = pipetrace.build("1f1b", 3, 4)
    return start(schedule, config, folder, f"{faulty.__name__}:{fault}", stall_s)


def failure(folder: Path, fault: str, stall_s: float = 60.0) -> RunError:
    with pytest.raises(RunError) as caught:
        attempt(folder, fault, stall_s=stall_s)
    assert not own_descendants()
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.usefixtures("watched")
def test_a_rank_that_raises(tmp_path: Path) -> None:
    error = failure(tmp_path, "raising")
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and raised ValueError: no such luck; rank 0 ")
    assert "; rank 2 " in error.message
    assert "3 of 3 traces" in error.hint
    assert all((tmp_path / trace_name(rank)).exists() for rank in range(3))
    assert "no such luck" in (tmp_path / error_name(1)).read_text()
    assert "Traceback" in (tmp_path / error_name(1)).read_text()


@pytest.mark.usefixtures("watched")
def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    error = failure(tmp_path, "killed")
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and was killed by SIGKILL; rank 0 ")
    assert "memory" in error.hint
    # What the others had recorded is kept.
    assert [(tmp_path / trace_name(rank)).exists() for rank in range(3)] == [True, False, True]


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("fault", ["killed", "hanging"])
def test_threads_that_wait_for_receives_keep_nobody(tmp_path: Path, fault: str) -> None:
    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=3, warmup=0, wait=Wait.DATAFLOW)
    with pytest.raises(RunError) as caught:
        attempt(tmp_path, fault, config, stall_s=STALL_S)
    assert not own_descendants()
    assert caught.value.message.startswith("rank 1 was in 1F2 of step 1 and ")
    assert "rank 2 waited for 2RECV_F2 from rank 1 in step 1" in caught.value.message


@pytest.mark.usefixtures("watched")
def test_a_rank_that_is_killed_by_a_signal_without_a_name(tmp_path: Path) -> None:
    error = failure(tmp_path, "unnamed_signal")
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and was killed by SIGRTMIN+6; rank 0 ")


@pytest.mark.usefixtures("watched")
def test_a_rank_that_somebody_else_tells_to_end(tmp_path: Path) -> None:
    error = failure(tmp_path, "terminated")
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and was told to end by SIGTERM, not by pipetrace; ")
    assert all((tmp_path / trace_name(rank)).exists() for rank in range(3))


@pytest.mark.usefixtures("watched")
def test_a_rank_that_is_stopped(tmp_path: Path) -> None:
    error = failure(tmp_path, "stopped", stall_s=STALL_S)
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and is stopped, and nothing moved for 0.3 s; rank 0 ")
    assert "SIGCONT" in error.hint
    # It was let go on, to write what it had.
    assert all((tmp_path / trace_name(rank)).exists() for rank in range(3))


def test_a_rank_that_ends_without_a_word(tmp_path: Path) -> None:
    assert "rank 1 was in 1F2 of step 1 and ended with status 3" in failure(tmp_path, "exiting").message


@pytest.mark.usefixtures("watched")
def test_a_rank_that_hangs(tmp_path: Path) -> None:
    error = failure(tmp_path, "hanging", stall_s=STALL_S)
    assert error.message == (
        "rank 1 was in 1F2 of step 1 and nothing moved for 0.3 s; rank 0 waited for 0RECV_B1 from rank 1 in step 1; "
        "rank 2 waited for 2RECV_F2 from rank 1 in step 1"
    )
    assert "timeout" in error.hint
    assert all((tmp_path / trace_name(rank)).exists() for rank in range(3))


def test_a_rank_that_hangs_and_does_not_listen(tmp_path: Path, watched: Callable[[float], None]) -> None:
    watched(0.6)
    error = failure(tmp_path, "deaf", stall_s=STALL_S)
    assert error.message.startswith("rank 1 was in 1F2 of step 1 and nothing moved for 0.3 s")
    assert [(tmp_path / trace_name(rank)).exists() for rank in range(3)] == [True, False, True]


def test_a_trace_that_is_being_written_is_not_cut_short(tmp_path: Path, watched: Callable[[float], None]) -> None:
    watched(0.6)
    config = RunConfig(costs=Costs(StageCosts(0, 0, 0)), steps=1, warmup=0, check=True)
    with pytest.raises(RunError, match="rank 1 compared with the reference and raised ValueError: no such luck") as of:
        start(pipetrace.build("1f1b", 2, 2), config, tmp_path, f"{faulty.__name__}:unequal", 60.0)
    assert "2 of 2 traces" in of.value.hint


def test_everything_has_ended_before_the_caller_gives_up() -> None:
    assert supervisor._GRACE_S < supervisor._PATIENCE_S < supervisor._LIMIT_S < launcher._END_S < 30


def test_a_workload_that_cannot_be_made_leaves_an_earlier_run(tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 3, 4)
    with claim(tmp_path, schedule, describe(schedule, RunConfig())) as claimed:
        (claimed.staging / trace_name(0)).write_text("old")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    error = failure(tmp_path, "failing_to_start")
    assert "was starting and raised MemoryError: too large" in error.message
    assert "is as it was" in error.hint
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_lost_weight_gradient_fails_the_check(tmp_path: Path) -> None:
    config = RunConfig("transformer", hidden=8, heads=2, sequence=4, batch=1, steps=1, warmup=0, check=True)
    schedule = pipetrace.build("zb-h1", 3, 4)
    checks = start(schedule, config, tmp_path, f"{faulty.__name__}:forgetful", 60.0)
    report = CheckReport(checks, "gradients", 1e-4, "")
    assert not report.passed
    assert [rank.bit_equal for rank in report.ranks] == [True, False, True]
    assert "stage 1" in report.text


@pytest.mark.usefixtures("watched")
def test_a_replica_that_is_killed_is_named_and_not_those_that_wait_for_it(tmp_path: Path) -> None:
    config = RunConfig("moe", hidden=8, heads=2, sequence=4, batch=1, ep=2, steps=3, warmup=0)
    schedule = pipetrace.build("1f1b", 2, 4)
    with pytest.raises(RunError) as caught:
        start(schedule, config, tmp_path, f"{faulty.__name__}:killed_in_a_replica", 60.0)
    assert caught.value.message.startswith("rank 3 was in 1F2 of step 1 and was killed by SIGKILL; rank 0 ")
    assert "rank 1 waited for the all-to-all in 1F2 of step 1" in caught.value.message
    assert not own_descendants()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[Supervisor, Connection]]:
    """A supervisor in this process, and the caller's end of its line."""
    schedule = pipetrace.build("1f1b", 3, 4)
    config = RunConfig()
    info = describe(schedule, config)
    caller, control = Pipe()
    with claim(tmp_path / "run", schedule, info) as claimed, caller, control:
        yield Supervisor(control, Job(schedule, config, info, claimed, "", 60.0), tmp_path), caller


def test_a_rank_that_cannot_be_forked_is_told(
    supervised: tuple[Supervisor, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("os.fork", full)
    outcome = supervised[0].run()
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("rank 0 of 3 cannot be started: Resource temporarily unavailable")
    assert "fewer ranks" in outcome.hint


def test_no_more_ranks_are_forked_once_the_caller_is_gone(
    supervised: tuple[Supervisor, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, caller = supervised
    forked: list[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        forked.append(pid)
        return pid

    monkeypatch.setattr("os.fork", counted)
    caller.close()
    assert supervisor.run() is None
    assert len(forked) == 1
    assert not own_descendants()


@pytest.fixture
def forked() -> Iterator[int]:
    """A process that does nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            time.sleep(600)
        finally:
            os._exit(0)  # whatever ends it: it must not go on as a second run of the tests
    yield pid
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def with_a_rank(of: Supervisor, pid: int, stall_s: float = 60.0) -> _Rank:
    """The one rank that a supervisor believes to have started."""
    of._job = replace(of._job, stall_s=stall_s)
    rank = _Rank(0, pid, Pipe(duplex=False)[0])
    of._ranks = [rank]
    return rank


def test_a_start_may_take_longer_than_an_action(supervised: tuple[Supervisor, Connection], forked: int) -> None:
    of = supervised[0]
    with_a_rank(of, forked, stall_s=-1.0)
    for phase in (Phase.STARTING, Phase.CONNECTING, Phase.WRITING, Phase.COMPUTING):
        assert of._failed_at is None, phase
        of._board.line(0).at(phase, parse_action("0F0").code)
        of._look_for_stall()
        of._look_for_stall()
    assert of._events[0].what == "nothing moved for -1 s"


@pytest.mark.parametrize("told", [False, True])
def test_who_obeys_before_it_could_listen_is_not_to_blame(
    told: bool, supervised: tuple[Supervisor, Connection], forked: int
) -> None:
    of = supervised[0]
    rank = with_a_rank(of, forked)
    of._stop_sent = told
    os.kill(forked, signal.SIGTERM)
    os.waitid(os.P_PID, forked, os.WEXITED | os.WNOWAIT)
    of._reap()
    assert not rank.alive
    assert [event.what for event in of._events] == ([] if told else ["was killed by SIGTERM"])


def test_steps_that_were_over_before_anybody_looked_are_told(
    supervised: tuple[Supervisor, Connection], forked: int
) -> None:
    of, caller = supervised
    with_a_rank(of, forked)
    of._tell_progress()
    assert not caller.poll()
    for line in map(of._board.line, range(3)):
        line.at(Phase.DONE)
        for _ in range(4):
            line.step_done()
    of._tell_progress()
    assert [caller.recv(), caller.recv()] == [Step(0), Step(4)]


def test_ctrl_c_ends_everything_and_keeps_the_traces(tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        if text.startswith("step "):
            signal.raise_signal(signal.SIGINT)

    config = RunConfig(costs=Costs(StageCosts(50 * MS, MS, MS)), steps=100, warmup=0)
    schedule = pipetrace.build("1f1b", 2, 2)
    with pytest.raises(KeyboardInterrupt):
        start(schedule, config, tmp_path, "pipetrace.execute.workloads.sleep:build", 60.0, interrupt)
    assert not own_descendants()
    assert (tmp_path / trace_name(0)).exists()
    assert (tmp_path / trace_name(1)).exists()
