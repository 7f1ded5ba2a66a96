"""The terminal that reports are printed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


NARROWEST = 24
"""Columns that are used even where there are fewer: then the terminal wraps lines."""

_USUAL = 80


def stdout_console(width: int | None = None) -> Console:
    """Standard output; raises BrokenPipeError, as `print` does, when its reader has gone.

    Args:
        width: Columns; the terminal's when None: 80 where it says none (COLUMNS=0), `NARROWEST` at least.
    """
    from rich.console import Console

    class StdoutConsole(Console):
        def on_broken_pipe(self) -> NoReturn:
            raise BrokenPipeError

    console = StdoutConsole(width=width)
    if console.width < NARROWEST:
        # rich prints nothing at all in no columns.
        console = StdoutConsole(width=NARROWEST if console.width > 0 else _USUAL)
    return console
