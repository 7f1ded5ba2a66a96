"""Files that are whole or not there: written beside their place and moved onto it at the end."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipetrace.errors import OutputError

_counter = itertools.count()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that takes the place of `path` only when the block ends well.

    A full disk, an error or Ctrl-C in the block leaves `path` as it was and nothing beside it. A file that is replaced
    keeps its mode. What is no regular file (a pipe, /dev/stdout, also behind a link) is written straight.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        # A link is followed, so that it still is one afterwards.
        target = path.resolve()
        present = _stat(path)
        # A link to a piped stdout leads to a name in /proc that is no file's: only following it tells.
        straight = present is not None and not (stat.S_ISREG(present.st_mode) and target.exists())
    except (OSError, RuntimeError, ValueError) as error:
        # RuntimeError: links in a circle; ValueError: a NUL in the name.
        raise OutputError(f"{str(path)!r} cannot be written: {error}") from None
    beside = target.with_name(f".pipetrace-{os.getpid()}-{next(_counter)}.tmp") if target.name else target
    try:
        if straight:
            with path.open("wb") as file:
                yield file
            return
        try:
            with beside.open("xb") as file:
                if present is not None:
                    # Before anything is in it: what was private stays so at every moment.
                    beside.chmod(stat.S_IMODE(present.st_mode))
                yield file
            beside.replace(target)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None


def _stat(path: Path) -> os.stat_result | None:
    """What is there, links followed; None where nothing is."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
