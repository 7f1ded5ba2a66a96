"""`pipetrace gen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say
from pipetrace.cli.moe_options import MoeOptions
from pipetrace.trace.formats import Colour

HELP = "Build a schedule, simulate it, and write its ideal as a trace, a page, a picture or a CSV."
EXAMPLE = "pipetrace gen zb-h1 -p 4 -m 8 -o zb-h1.pftrace"


def command(
    sizes: options.Sizes,
    costs: options.AllCosts,
    wait: options.WaitOptions,
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
    planned = moe.plan(lambda of: options.listed(sizes.schedule(name, source, of), comms), costs)
    schedule, of, waiting, parts = planned.schedule, planned.costs, wait.waiting(costs.unit), planned.parts
    timeline, sizes_of = options.timeline_of(schedule, of, waiting), costs.memory_sizes()
    if sizes_of is not None:
        sizes_of.check_stages(schedule.stages, schedule.name)
    for file in files:
        write_schedule(file, schedule, timeline, of, colour=colour, parts=parts)
        say(f"wrote {file}")
        if file.suffix.lower() == ".csv" and (why := not_for_torch(schedule)):
            say(f"note: {file} is for pipetrace only: {why}")
    if as_json:
        from pipetrace.report.summary import schedule_summary, schedules_json

        summary = schedule_summary(schedule, timeline, of, sizes=sizes_of, waiting=waiting, parts=parts)
        print_json(schedules_json([summary]))
    elif not files:
        from pipetrace.report.terminal import print_schedule_tables

        print_schedule_tables(schedule, timeline, costs=of, sizes=sizes_of, waiting=waiting, parts=parts)
        say("nothing was written; give -o FILE, e.g. -o schedule.pftrace for Perfetto or -o schedule.html")
