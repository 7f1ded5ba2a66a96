"""`pipetrace diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say

HELP = "Compare a run with its ideal, action by action: a run folder, or traces with the schedule they ran."
EXAMPLE = "pipetrace diff RUN/"


def command(
    sizes: options.Sizes,
    costs: options.AllCosts,
    traces: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder, or trace files or folders.")],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Written by suffix: .html (page), .json or .json.gz (one trace with both), .svg, .png; repeatable.",
            show_default="diff.html and diff.json.gz in the run folder",
        ),
    ] = None,
    schedule_name: Annotated[
        str | None,
        typer.Option(
            "--schedule", metavar="NAME", help="What was run, for traces of others.", rich_help_panel=options.SCHEDULE
        ),
    ] = None,
    source: options.From = None,
    as_json: options.Json = False,
) -> None:
    from pipetrace.diff_run import diff_traces
    from pipetrace.report.write import DIFF_SUFFIXES, default_diff_files, suffix_of, write_diff

    for file in out or []:
        suffix_of(file, DIFF_SUFFIXES)
    of = costs.all()
    schedule = None
    if schedule_name is not None or source is not None:
        schedule = sizes.schedule(schedule_name, source, of)
    elif sizes.given():
        raise typer.BadParameter("-p, -m and what else is built with go with --schedule NAME; a run folder has its own")
    own = costs.only_p2p()
    run = diff_traces(traces, schedule, None if own else of, of.p2p if own and costs.p2p is not None else None)
    if as_json:
        print_json(run.to_dict())
    else:
        from pipetrace.report.terminal import print_diff

        print_diff(run)
    for file in out or default_diff_files(traces):
        write_diff(file, run)
        say(f"wrote {file}")
