"""`pipetrace diff`."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say
from pipetrace.cli.cost_options import AllCosts
from pipetrace.cli.progress import reading_progress
from pipetrace.cli.reading_options import Reading
from pipetrace.cli.schedule_options import Sizes
from pipetrace.trace.formats import Colour

HELP = "Compare a run with its ideal, action by action: a run folder, or traces with the schedule they ran."
THRESHOLD_CROSSED = 3
EXAMPLE = "pipetrace diff RUN/"


def command(
    sizes: Sizes,
    costs: AllCosts,
    reading: Reading,
    traces: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder, or trace files or folders.")],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="Written by suffix: .html (page), .pftrace (one trace with both, for Perfetto) or .json (the same for "
            "any viewer), both also with .gz, .svg, .png; repeatable.",
            show_default="diff.html and diff.pftrace in the run folder; none with --json or --before",
        ),
    ] = None,
    source: options.From = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(
            "--before", metavar="RUN", help="Compare with an earlier run of the same schedule, not the ideal."
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="FIGURE:+LIMIT",
            help="Exit with 3 where a figure is over its limit: bubble:+5%, makespan:+10%, slip:+2ms, overhead:+10%, "
            "imbalance:+5%, residual:+1%, missing:0, reordered:0; repeatable.",
        ),
    ] = None,
    colour: options.ColourBy = Colour.MICROBATCH,
    as_json: options.Json = False,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.diff.threshold import parse_threshold
    from pipetrace.diff_run import diff_traces
    from pipetrace.report.verdict import verdict
    from pipetrace.report.write import DIFF_SUFFIXES, default_diff_files, suffix_of, write_diff
    from pipetrace.trace.run_folder import refuse_to_replace

    for file in out or []:
        suffix_of(file, DIFF_SUFFIXES)
    refuse_to_replace(out or [], traces)
    limits = [parse_threshold(text) for text in fail_on or []]
    of = costs.all()
    schedule = reading.what_was_run(sizes, source, of, typed)
    with reading_progress(traces) as progress:
        run = diff_traces(
            traces,
            schedule,
            of if costs.actions_given() else None,
            transfers=of if costs.transfers_given() else None,
            before=before or (),
            reading={"progress": progress, **reading.options()},
        )
    # What a script asks for, or what holds two runs against each other, replaces no page of the run against its ideal.
    files = out or ([] if as_json or before else default_diff_files(traces))
    for file in files:
        write_diff(file, run, colour=colour)
        say(f"wrote {file}")
    if not out and files:
        say(f"next: pipetrace open {shlex.quote(str(files[-1]))}")
    with suppress(BrokenPipeError):  # as of `| head`: a limit that is crossed is crossed all the same
        if as_json:
            print_json({**run.to_dict(), "verdict": verdict(run.analysis)})
        else:
            from pipetrace.report.terminal import print_diff

            print_diff(run)
    crossed = [said for limit in limits if (said := limit.crossed(run.analysis)) is not None]
    for said in crossed:
        say(f"over the limit: {said}")
    if crossed:
        raise typer.Exit(THRESHOLD_CROSSED)
