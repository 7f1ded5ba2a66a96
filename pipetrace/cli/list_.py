"""`pipetrace list`."""

from __future__ import annotations

import typer

from pipetrace.schedules import get, names

HELP = "List the schedules: placement, limits, paper."
EXAMPLE = "pipetrace list"


def command() -> None:
    for name in names():
        spec = get(name)
        typer.echo(f"{name:<10} {spec.placement:<6} {spec.limits:<14} {spec.paper}")
