"""The command line: one command a file, no logic of its own."""

from __future__ import annotations

import os
import sys

import typer

from pipetrace.cli import compare, diff, gen, list_, open_, read, run, show
from pipetrace.cli.console import fail
from pipetrace.cli.spread import spread
from pipetrace.errors import PipetraceError
from pipetrace.version import __version__

app = typer.Typer(
    name="pipetrace",
    help="Pipeline-parallel schedules as Perfetto traces: build the ideal, run it with torch, compare the two.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, module in (
    ("list", list_),
    ("gen", gen),
    ("show", show),
    ("compare", compare),
    ("run", run),
    ("read", read),
    ("diff", diff),
    ("open", open_),
):
    app.command(name, help=module.HELP, epilog=f"Example: `{module.EXAMPLE}`")(spread(module.command))


@app.callback(invoke_without_command=True)
def version(
    show_version: bool = typer.Option(False, "--version", help="Print the version and end.", is_eager=True),
) -> None:
    if show_version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Runs the command line; exits with 0, 1 for a known error, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        app()
    except PipetraceError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does: no more can be written, and that is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
