"""Starts the supervisor, listens to it, and sees it end. Runs in the caller's process and imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from pipetrace.errors import RunError
from pipetrace.execute.job import Done, Failed, Job, Step
from pipetrace.execute.result import RankCheck

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

Progress = Callable[[str], None]


def launch(job: Job, progress: Progress) -> tuple[RankCheck, ...]:
    """Runs a job and returns when all its processes have ended.

    Args:
        job: What to run.
        progress: Is told what happens, a short line each.

    Returns:
        One check a rank, where checks were asked for.

    Raises:
        RunError: A rank or the supervisor broke.
        KeyboardInterrupt: From the keyboard, after everything has ended.
    """
    with tempfile.TemporaryDirectory(prefix="pipetrace-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        log = scratch / "supervisor.log"
        control, theirs = Pipe()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches the caller alone, who then ends the ranks in order.
                start_new_session=True,
            )
        theirs.close()
        with control:
            try:
                progress(f"starting {job.schedule.ranks} ranks")
                control.send([entry for entry in sys.path if isinstance(entry, str)])
                control.send((job, scratch))
                return _listen(control, job, progress)
            except (EOFError, OSError):
                # Before it is waited for: until then its process group cannot be another's.
                _kill_group(process)
                raise RunError(_why_it_ended(process.wait(), log)) from None
            finally:
                _end(process, control)


def _listen(control: Connection, job: Job, progress: Progress) -> tuple[RankCheck, ...]:
    config = job.config
    while True:
        message = control.recv()
        if isinstance(message, Done):
            return message.checks
        if isinstance(message, Failed):
            raise RunError(message.message, message.hint)
        if isinstance(message, Step):
            profiled = message.done - config.warmup
            if message.done == 0:
                progress("all ranks are connected")
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


def _why_it_ended(code: int, log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"the process that starts the ranks {how}" + (f": {lines[-1].strip()}" if lines else "")
