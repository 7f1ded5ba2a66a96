"""Runs the command line as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.warm import Warm

warm: Warm | None = None
"""What runs commands that need no environment of their own, once it is there."""

_ALIKE = {"COLUMNS"}
"""Variables that are first read when a command runs."""


def pipetrace(
    *arguments: object, cwd: Path | None = None, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`pipetrace ARGUMENTS`, at 80 columns and without colour."""
    texts = list(map(str, arguments))
    variables = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"} | environment
    if warm is not None and environment.keys() <= _ALIKE:
        return warm.run(texts, cwd, variables, timeout)
    return subprocess.run(
        [sys.executable, "-m", "pipetrace", *texts],
        cwd=cwd,
        env=variables,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )


def refusal(*arguments: object, cwd: Path | None = None) -> str:
    """What a known error prints: exactly one line, on stderr, with exit code 1."""
    ran = pipetrace(*arguments, cwd=cwd)
    assert ran.returncode == 1, ran
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert len(lines) == 1, ran.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def misuse(*arguments: object, cwd: Path | None = None) -> str:
    """What wrong usage prints, with exit code 2 and no traceback."""
    ran = pipetrace(*arguments, cwd=cwd)
    assert ran.returncode == 2, ran
    assert ran.stdout == ""
    assert "Traceback" not in ran.stderr
    return ran.stderr
