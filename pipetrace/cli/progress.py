"""Progress of reading files, on stderr, where that takes over a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SILENT_S = 1.0
"""What takes no longer needs no bar."""


@contextmanager
def reading_progress(paths: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Shows how much of some files was read, once it has taken over a second and where stderr is a terminal.

    Args:
        paths: Files, or folders of which all files may be read.

    Yields:
        What is to be told how many bytes were read since it was told last.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    started = time.monotonic()
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True
    )
    task = bar.add_task("reading", total=_size_of(paths) or None)
    shown = False

    def read(count: int) -> None:
        nonlocal shown
        bar.advance(task, count)
        if not shown and console.is_terminal and time.monotonic() - started > SILENT_S:
            shown = True
            bar.start()

    try:
        yield read
    finally:
        if shown:
            bar.stop()


def _size_of(paths: Sequence[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(OSError, ValueError):
            files = [path] if not path.is_dir() else [file for file in path.iterdir() if ".json" in file.name]
            total += sum(file.stat().st_size for file in files)
    return total
