"""`pipetrace gen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import say
from pipetrace.cli.cost_options import AllCosts
from pipetrace.cli.ideal import ideal_of, print_summary
from pipetrace.cli.moe_options import MoeOptions
from pipetrace.cli.schedule_options import Sizes
from pipetrace.cli.wait_options import WaitOptions
from pipetrace.trace.formats import Colour

HELP = "Build a schedule, simulate it, and write its ideal as a trace, a page, a picture or a CSV."
EXAMPLE = "pipetrace gen zb-h1 -p 4 -m 8 -o zb-h1.pftrace"


def command(
    sizes: Sizes,
    costs: AllCosts,
    wait: WaitOptions,
    moe: MoeOptions,
    name: options.Name = None,
    source: options.From = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Written by suffix: .pftrace and .json (traces; also with .gz), .html .svg .png .csv; repeatable.",
        ),
    ] = None,
    colour: options.ColourBy = Colour.MICROBATCH,
    comms: options.Comms = False,
    as_json: options.Json = False,
) -> None:
    from pipetrace.report.write import SCHEDULE_SUFFIXES, suffix_of, write_schedule
    from pipetrace.trace.torch_csv import not_for_torch

    files = out or []
    for file in files:
        suffix_of(file, SCHEDULE_SUFFIXES)
    of = ideal_of(sizes, costs, wait, moe, name, source, comms)
    planned, schedule = of.planned, of.planned.schedule
    for file in files:
        write_schedule(file, schedule, of.timeline, planned.costs, colour=colour, parts=planned.parts)
        say(f"wrote {file}")
        if file.suffix.lower() == ".csv" and (why := not_for_torch(schedule)):
            say(f"note: {file} is for pipetrace only: {why}")
    if as_json:
        print_summary(of)
    elif not files:
        from pipetrace.report.terminal import print_schedule_tables

        print_schedule_tables(
            schedule, of.timeline, costs=planned.costs, sizes=of.sizes, waiting=of.waiting, parts=planned.parts
        )
        say("nothing was written; give -o FILE, e.g. -o schedule.pftrace for Perfetto or -o schedule.html")
