"""`pipetrace gen`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say
from pipetrace.simulate import simulate

HELP = "Build a schedule, simulate it, and write its ideal as a trace, a page, a picture or a CSV."
EXAMPLE = "pipetrace gen zb-h1 -p 4 -m 8 -o zb-h1.json"


def command(
    name: options.Name = None,
    ranks: options.Ranks = None,
    microbatches: options.Microbatches = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Written by suffix: .json .json.gz .html .svg .png .csv; repeatable."
        ),
    ] = None,
    source: options.From = None,
    costs_text: options.CostsText = None,
    unit: options.Unit = "ms",
    p2p: options.P2P = None,
    costs_file: options.CostsFile = None,
    as_json: options.Json = False,
) -> None:
    from pipetrace.report.write import SCHEDULE_SUFFIXES, suffix_of, write_schedule

    files = out or []
    for file in files:
        suffix_of(file, SCHEDULE_SUFFIXES)
    schedule = options.schedule_of(name, ranks, microbatches, source)
    costs = options.costs_of(costs_text, unit, p2p, costs_file)
    timeline = simulate(schedule, costs)
    for file in files:
        write_schedule(file, schedule, timeline, costs)
        say(f"wrote {file}")
    if as_json:
        from pipetrace.report.summary import schedule_summary, schedules_json

        print_json(schedules_json([schedule_summary(schedule, timeline, costs)]))
    elif not files:
        from pipetrace.report.terminal import print_schedule_tables

        print_schedule_tables(schedule, timeline)
        say("nothing was written; give -o FILE, e.g. -o schedule.json for Perfetto or -o schedule.html")
