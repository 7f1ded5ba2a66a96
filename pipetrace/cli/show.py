"""`pipetrace show`."""

from __future__ import annotations

from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.cost_options import AllCosts
from pipetrace.cli.ideal import ideal_of, print_summary
from pipetrace.cli.moe_options import MoeOptions
from pipetrace.cli.schedule_options import Sizes
from pipetrace.cli.wait_options import WaitOptions

HELP = "Draw a schedule's tile chart in the terminal, with its figures."
EXAMPLE = "pipetrace show interleaved -p 4 -m 8 -v 2 --width 120"


def command(
    sizes: Sizes,
    costs: AllCosts,
    wait: WaitOptions,
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
    of = ideal_of(sizes, costs, wait, moe, name, source, comms)
    if as_json:
        print_summary(of)
        return
    from pipetrace.report.console import stdout_console
    from pipetrace.report.terminal import print_schedule

    print_schedule(
        of.planned.schedule,
        of.timeline,
        costs=of.planned.costs,
        sizes=of.sizes,
        waiting=of.waiting,
        parts=of.planned.parts,
        verbose=verbose,
        console=stdout_console(width),
    )
