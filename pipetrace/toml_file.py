"""TOML files, read in one place so that what is wrong with one is told in the same words everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pipetrace.errors import PipetraceError
from pipetrace.reading import read_whole

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_toml(path: Path, error: type[PipetraceError], hint: str) -> dict[str, Any]:
    """The tables of a TOML file, which may begin with a byte-order mark.

    Args:
        path: The file.
        error: What is raised.
        hint: What to do where there is no such file.

    Raises:
        PipetraceError: `error`; the file cannot be read, or is no TOML.
    """
    try:
        data = read_whole(path)
    except OSError as reason:
        raise error(f"{path}: {reason.strerror or reason}", hint) from None
    except ValueError as reason:  # a NUL in the name
        raise error(f"{str(path)!r}: {reason}", hint) from None
    try:
        return parse_toml(data.removeprefix(_BYTE_ORDER_MARK).decode("utf-8"))
    except UnicodeDecodeError as reason:
        raise error(f"{path} is no TOML: byte {reason.start} is not UTF-8", "save it as plain text in UTF-8") from None
    except ValueError as reason:
        raise error(f"{path} is no TOML: {reason}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of TOML text.

    Raises:
        ValueError: It is no TOML, or more than can be read.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a number has more digits than can be read") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
