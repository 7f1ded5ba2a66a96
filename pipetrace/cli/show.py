"""`pipetrace show`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json
from pipetrace.cli.moe_options import MoeOptions

HELP = "Draw a schedule's tile chart in the terminal, with its figures."
EXAMPLE = "pipetrace show interleaved -p 4 -m 8 -v 2 --width 120"


def command(
    sizes: options.Sizes,
    costs: options.AllCosts,
    wait: options.WaitOptions,
    moe: MoeOptions,
    name: options.Name = None,
    source: options.From = None,
    width: Annotated[
        int | None, typer.Option(min=40, metavar="COLUMNS", help="Width of the chart.", show_default="the terminal's")
    ] = None,
    comms: options.Comms = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also what idle time waited for, and the critical path.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    planned = moe.plan(lambda of: options.listed(sizes.schedule(name, source, of), comms), costs)
    schedule, of, waiting, parts = planned.schedule, planned.costs, wait.waiting(costs.unit), planned.parts
    timeline, sizes_of = options.timeline_of(schedule, of, waiting), costs.memory_sizes()
    if sizes_of is not None:
        sizes_of.check_stages(schedule.stages, schedule.name)
    if as_json:
        from pipetrace.report.summary import schedule_summary, schedules_json

        summary = schedule_summary(schedule, timeline, of, sizes=sizes_of, waiting=waiting, parts=parts)
        print_json(schedules_json([summary]))
        return
    from pipetrace.report.console import stdout_console
    from pipetrace.report.terminal import print_schedule

    print_schedule(
        schedule,
        timeline,
        costs=of,
        sizes=sizes_of,
        waiting=waiting,
        parts=parts,
        verbose=verbose,
        console=stdout_console(width),
    )
