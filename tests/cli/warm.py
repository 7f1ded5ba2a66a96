"""Runs command after command, each in a fork of a process that has loaded everything: loading takes most of their time.

What runs is `python -m pipetrace` with its own arguments, folder, environment and output, in a process of its own that
ends as any other does. The process that forks has one thread, so that nothing is held when it does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, TextIO

LOADED = ("cli", "diff", "metrics", "passes", "report", "schedules", "trace")
"""Packages of pipetrace that are loaded; what runs schedules is not, as it is with torch in other processes."""


class Warm:
    """The process that forks, seen from the tests."""

    def __init__(self) -> None:
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that it can be killed with what it runs
        )

    def run(
        self, arguments: list[str], cwd: Path | None, environment: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """A command, as `subprocess.run` would run it.

        Raises:
            subprocess.TimeoutExpired: It took longer than `timeout` s, and was killed.
        """
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            asked = {
                "arguments": arguments,
                "cwd": str(cwd or Path.cwd()),
                "environment": environment,
                "out": str(out),
                "err": str(err),
            }
            to.write(json.dumps(asked) + "\n")
            to.flush()
            if not select.select([answers], [], [], timeout)[0]:
                os.killpg(self._process.pid, signal.SIGKILL)
                self.end()
                self._process = self._started()
                raise subprocess.TimeoutExpired(arguments, timeout)
            answer = answers.readline()
            assert answer, "the process that runs commands has ended"
            code = int(answer)
            printed, said = (path.read_bytes().decode() for path in (out, err))
        return subprocess.CompletedProcess(arguments, code, printed, said)

    def end(self) -> None:
        """Ends the process; no command runs any more."""
        self._process.communicate()


def _main() -> None:
    for package in LOADED:
        found = importlib.import_module(f"pipetrace.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}."):
            importlib.import_module(module.name)
    for name in (
        "plotly.graph_objects",
        "pydantic.functional_validators",
        "rich.progress",
        "rich.table",
        "typer.rich_utils",
    ):
        importlib.import_module(name)
    # What was loaded need be looked at by no fork's collector, which would copy it all.
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            answers.close()
            _become(asked)
            runpy.run_module("pipetrace", run_name="__main__", alter_sys=True)
            return
        status = os.waitpid(pid, 0)[1]
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _become(asked: dict[str, Any]) -> None:
    """What a process is that was started for the command."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    sys.argv[1:] = asked["arguments"]
    sys.path[0] = asked["cwd"]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = _output(1, asked["out"], sys.stdout)
    sys.stderr = _output(2, asked["err"], sys.stderr)


def _output(number: int, path: str, before: TextIO) -> TextIO:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, number)
    os.close(file)
    return os.fdopen(number, "w", encoding=before.encoding, errors=before.errors, closefd=False)


if __name__ == "__main__":
    _main()
