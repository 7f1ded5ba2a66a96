"""Files that are whole or not there: written beside their place and moved onto it at the end."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pipetrace.errors import OutputError

_counter = itertools.count()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing that takes the place of `path` only when the block ends well.

    A full disk, an error or Ctrl-C in the block leaves `path` as it was and nothing beside it. What is no regular file
    (a pipe, /dev/stdout) is written straight.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        # A link is followed, so that it still is one afterwards.
        target = path.resolve()
        straight = target.exists() and not target.is_file()
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
                yield file
            beside.replace(target)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from None
