"""The terminal that reports are printed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


def stdout_console(width: int | None = None) -> Console:
    """Standard output; raises BrokenPipeError, as `print` does, when its reader has gone.

    Args:
        width: Columns; the terminal's when None.
    """
    from rich.console import Console

    class StdoutConsole(Console):
        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError

    return StdoutConsole(width=width)
