"""Where the command line prints: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import typer

from pipetrace.errors import PipetraceError


def say(text: str) -> None:
    """A line of progress, to stderr."""
    typer.echo(text, err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document, to stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def fail(error: PipetraceError) -> NoReturn:
    """Prints a known error and what to do about it, and ends with exit code 1."""
    line = " ".join(error.message.split())
    hint = f" ({' '.join(error.hint.split())})" if error.hint else ""
    # A file name can hold what this terminal's encoding cannot print.
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    typer.echo(f"error: {line}{hint}".encode(encoding, "replace").decode(encoding), err=True)
    raise SystemExit(1)
