"""Where the command line prints: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from pipetrace.errors import PipetraceError
from pipetrace.shown import printable


def say(text: str) -> None:
    """A line of progress, to stderr; a line end or a control character in it, as in a file's name, is escaped."""
    _write(sys.stderr, printable(text))


def tell(text: str) -> None:
    """Lines of a result, to stdout."""
    _write(sys.stdout, text)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document, to stdout."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    tell(text)


def error_line(error: PipetraceError) -> str:
    """A known error and what to do about it, on one line."""
    line = " ".join(error.message.split())
    return f"error: {line}" + (f" ({' '.join(error.hint.split())})" if error.hint else "")


def _write(stream: TextIO | None, text: str) -> None:
    # A program can be started without a stdout or stderr.
    if stream is not None:
        stream.write(f"{text}\n")
        stream.flush()
