"""All commands as one program."""

from __future__ import annotations

import typer

from pipetrace.cli import compare, diff, fit, gen, list_, open_, read, run, show
from pipetrace.cli.once import OnceCommand
from pipetrace.cli.spread import spread
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
    ("fit", fit),
    ("open", open_),
):
    app.command(name, cls=OnceCommand, help=module.HELP, epilog=f"Example: `{module.EXAMPLE}`")(spread(module.command))


@app.callback(invoke_without_command=True)
def version(
    show_version: bool = typer.Option(False, "--version", help="Print the version and end.", is_eager=True),
) -> None:
    if show_version:
        typer.echo(__version__)
        raise typer.Exit
