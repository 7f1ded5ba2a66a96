"""`pipetrace list`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say, tell

if TYPE_CHECKING:
    from pipetrace.schedules import ScheduleSpec

HELP = "List the schedules, also those of plug-ins: placement, options, limits, paper."
EXAMPLE = "pipetrace list"


def command(as_json: options.Json = False) -> None:
    from pipetrace.schedules import listed

    specs, faults = listed()
    for fault in faults:
        say(f"warning: {fault}")
    if as_json:
        fields = ("name", "placement", "limits", "paper", "options")
        print_json({"schema": 1, "schedules": [{name: getattr(spec, name) for name in fields} for spec in specs]})
    else:
        _print(specs)


def _print(specs: list[ScheduleSpec]) -> None:
    """A line each where the terminal is wide enough; else the paper, or everything, stands on a line of its own."""
    from pipetrace.report.console import stdout_console
    from pipetrace.schedules.spec import FLAGS

    rows = [
        (
            spec.name,
            spec.placement,
            " ".join(FLAGS.get(option, f"--option {option}") for option in spec.options if option != "costs") or "-",
            spec.limits,
            spec.paper,
        )
        for spec in specs
    ]
    width = stdout_console().width
    head = ("name", "placement", "options", "limits", "paper")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(5)]
    if sum(widths[:4]) + 6 > width:
        for name, *fields in rows:
            tell(name)
            for field, text in zip(head[1:], fields, strict=True):
                tell(textwrap.fill(f"{field}: {text}", width, initial_indent="  ", subsequent_indent="    "))
        return
    one_line = sum(widths) + 8 <= width
    for row in (head, *rows):
        first = "  ".join(text.ljust(width) for text, width in zip(row[:4], widths[:4], strict=True))
        if one_line:
            tell(f"{first}  {row[4]}")
        else:
            tell(f"{first.rstrip()}\n    {row[4]}")
