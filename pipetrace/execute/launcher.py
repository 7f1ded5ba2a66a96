"""Starts the supervisor, gives it jobs, listens to it, and sees it end. In the caller's process; imports no torch."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from pipetrace.errors import RunError
from pipetrace.execute.job import Done, Failed, Job, Step
from pipetrace.execute.output import RankOutput
from pipetrace.execute.result import RankCheck
from pipetrace.execute.signals import is_stopped, signal_name

# The supervisor finds modules where the caller does, whatever the caller did to its path.
_START = """
import sys
from multiprocessing.connection import Connection
control = Connection(int(sys.argv[1]))
sys.path[:] = control.recv()
from pipetrace.execute.supervisor import main
main(control)
"""

_END_S = 20.0  # more than the supervisor gives its ranks
_START_S = 120.0  # for torch to be imported from a slow disk, on top of the time-out
_SILENCE_S = 5.0  # for the supervisor's beats to be late, on top of the time-out
_CLOSING_S = 3.0  # between the end of the line and that of the process

Progress = Callable[[str], None]


class Launcher:
    """Runs jobs, one after the other, in ranks that one supervisor forks: torch is imported once for all of them.

    To be used in a `with`; at its end all processes have ended. After a job that broke it takes no other.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pipetrace-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "supervisor.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._end()
        finally:
            self._folder.cleanup()

    def run(self, job: Job, progress: Progress) -> tuple[RankCheck, ...]:
        """Runs a job and returns when all its ranks have ended.

        Args:
            job: What to run.
            progress: Is told what happens, and what ranks print, a line each.

        Returns:
            One check a rank, where checks were asked for.

        Raises:
            RunError: A rank or the supervisor broke.
            KeyboardInterrupt: From the keyboard, after everything has ended.
        """
        scratch = Path(tempfile.mkdtemp(dir=self._folder.name))
        try:
            progress(f"starting {_count(job)}")
            began = time.monotonic()
            process, control = self._started()
            try:
                _send(control, (job, scratch))
                return _listen(control, job, progress, RankOutput(scratch, job.processes), began)
            except _SilentError as silence:
                stopped = is_stopped(process.pid)
                _kill_group(process)
                process.wait()
                how = "is stopped" if stopped else "does not answer"
                raise RunError(
                    f"the process that starts the ranks {how}: nothing was heard of it for {silence.seconds:g} s",
                    "SIGSTOP or a debugger stops a process; SIGCONT lets it go on" if stopped else "",
                ) from None
            except _GoneError:
                by_itself = _ends_by_itself(process)
                _kill_group(process)
                raise RunError(_why_it_ended(process.wait(), by_itself, self._log)) from None
        except BaseException:
            self._end()
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The supervisor and the line to it."""
        if self._process is not None and self._control is not None:
            return self._process, self._control
        self._control, theirs = Pipe()
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches the caller alone, who then ends the ranks in order.
                start_new_session=True,
            )
        theirs.close()
        _send(self._control, [entry for entry in sys.path if isinstance(entry, str)])
        return self._process, self._control

    def _end(self) -> None:
        """Returns when the supervisor has ended, and with it all ranks."""
        process, control = self._process, self._control
        self._process = self._control = None
        if process is None or control is None:
            return
        with control:
            _end(process, control)


def launch(job: Job, progress: Progress) -> tuple[RankCheck, ...]:
    """Runs one job; see `Launcher.run`."""
    with Launcher() as launcher:
        return launcher.run(job, progress)


class _GoneError(Exception):
    """The supervisor has closed the line."""


class _SilentError(Exception):
    """The supervisor has the line open and says nothing."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def _count(job: Job) -> str:
    ranks = job.schedule.ranks * job.info.replicas
    return f"{ranks} ranks in one process" if job.config.one_process else f"{ranks} ranks"


def _send(control: Connection, value: object) -> None:
    try:
        control.send(value)
    except OSError:
        raise _GoneError from None


def _receive(control: Connection, patience: float) -> object:
    try:
        if not control.poll(patience):
            raise _SilentError(patience)
        return control.recv()
    except (EOFError, OSError):
        raise _GoneError from None


def _listen(
    control: Connection, job: Job, progress: Progress, output: RankOutput, began: float
) -> tuple[RankCheck, ...]:
    config = job.config
    patience = job.stall_s + _START_S
    while True:
        message = _receive(control, patience)
        patience = job.stall_s + _SILENCE_S
        # The supervisor says something every second.
        for line in output.new_lines(whole=not isinstance(message, Done | Failed)):
            progress(line)
        if isinstance(message, Done):
            return message.checks
        if isinstance(message, Failed):
            raise RunError(message.message, message.hint)
        if isinstance(message, Step):
            profiled = message.done - config.warmup
            if message.done == 0:
                progress(f"all ranks are connected after {time.monotonic() - began:.1f} s")
            elif profiled <= 0:
                progress(f"warm-up step {message.done} of {config.warmup} done")
            else:
                progress(f"step {profiled} of {config.steps} done")


def _end(process: subprocess.Popen[bytes], control: Connection) -> None:
    """Returns when the supervisor has ended, and with it all ranks."""
    if process.returncode is not None:
        return
    try:
        # A supervisor that is done does not listen any more.
        with contextlib.suppress(OSError):
            control.send("stop")
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        process.wait()
    except BaseException:
        # A second Ctrl-C: no more patience.
        _kill_group(process)
        process.wait()
        raise


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ends_by_itself(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process that closed its line ends without being killed.

    It is not reaped: until then its process group cannot be another's.
    """
    limit = time.monotonic() + _CLOSING_S
    while time.monotonic() < limit:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(0.01)
    return False


def _why_it_ended(code: int, by_itself: bool, log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if not by_itself:
        how = "stopped answering and had to be killed"
    else:
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with status {code}"
    return f"the process that starts the ranks {how}" + (f": {lines[-1].strip()}" if lines else "")
