"""Options that several commands share and that stand alone; groups of them have files of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from pipetrace.schedule import Schedule
from pipetrace.trace.formats import Colour

SCHEDULE, COSTS, WAITING = "Schedule", "Costs", "Waiting"  # the help's panels

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="A schedule; `pipetrace list` has them all.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="In place of NAME: a schedule in torch's CSV, or FILE.py:BUILDER, a Python function of your own.",
        rich_help_panel=SCHEDULE,
    ),
]
Comms = Annotated[
    bool,
    typer.Option("--comms", help="List sends and receives too, in one order for both sides of each pair of ranks."),
]
ColourBy = Annotated[
    Colour, typer.Option("--colour", help="What shares a colour in a .pftrace; the UI colours a .json by kind.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

Typed = frozenset[str]
"""A parameter of this type is handed the names of all options that stand on the command line itself."""


def listed(schedule: Schedule, comms: bool) -> Schedule:
    """A schedule with its sends and receives in the lists where `comms` says so."""
    if not comms or schedule.has_communication:
        return schedule
    from pipetrace.passes import add_communication

    return add_communication(schedule)
