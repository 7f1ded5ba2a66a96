"""What `show`, `gen` and `diff` print: charts and tables, to standard output, in colour where it is a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetrace.costs import Costs
from pipetrace.metrics import MemorySizes
from pipetrace.report.console import stdout_console
from pipetrace.report.overlap import InParts
from pipetrace.report.tables import diff_tables, schedule_tables
from pipetrace.report.terminal_chart import chart, charts
from pipetrace.report.verdict import verdict
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pipetrace.diff_run import RunDiff

__all__ = [
    "chart",
    "charts",
    "diff_tables",
    "has_few_colours",
    "print_diff",
    "print_schedule",
    "print_schedule_tables",
    "schedule_tables",
    "wants_colour",
]


def wants_colour(console: Console) -> bool:
    """Whether a chart may say something by colour alone: on a terminal that has colours, without NO_COLOR."""
    return console.color_system is not None and not console.no_color


def has_few_colours(console: Console) -> bool:
    """Whether a terminal's colours are sixteen of its own choice."""
    return console.color_system in ("standard", "windows")


def print_schedule(
    schedule: Schedule,
    timeline: Timeline,
    *,
    costs: Costs | None = None,
    sizes: MemorySizes | None = None,
    verbose: bool = False,
    waiting: Waiting | None = None,
    parts: InParts | None = None,
    console: Console | None = None,
) -> None:
    """Prints a schedule's chart and its figures.

    Args:
        schedule: The order.
        timeline: Its ideal.
        costs: What it was simulated with, for `verbose`.
        sizes: How large things are, for memory in bytes.
        verbose: Also prints what idle time waited for, and the critical path.
        waiting: How it was simulated to wait, for what leaving the list order brings.
        parts: How it came to be in parts of MoE layers, if it is.
        console: Where to; standard output when None.
    """
    console = console or stdout_console()
    drawn = chart(timeline, width=console.width, colour=wants_colour(console), basic=has_few_colours(console))
    console.print(drawn, highlight=False)
    _print(
        console,
        schedule_tables(schedule, timeline, costs=costs, sizes=sizes, verbose=verbose, waiting=waiting, parts=parts),
    )


def print_schedule_tables(
    schedule: Schedule,
    timeline: Timeline,
    *,
    costs: Costs | None = None,
    sizes: MemorySizes | None = None,
    verbose: bool = False,
    waiting: Waiting | None = None,
    parts: InParts | None = None,
    console: Console | None = None,
) -> None:
    """Prints a schedule's figures; the arguments are those of `print_schedule`."""
    tables = schedule_tables(
        schedule, timeline, costs=costs, sizes=sizes, verbose=verbose, waiting=waiting, parts=parts
    )
    _print(console or stdout_console(), tables, before=False)


def print_diff(run: RunDiff, *, console: Console | None = None) -> None:
    """Prints the verdict, the ideal above the measured, and the diff's figures.

    Args:
        run: What was compared, with what it rests on.
        console: Where to; standard output when None.
    """
    from rich.text import Text

    console = console or stdout_console()
    if run.held_against is not None:
        console.print(Text(f"! {run.held_against}", "bold"), highlight=False)
    for index, sentence in enumerate(verdict(run.analysis)):
        console.print(Text(sentence, "bold" if not index else ""), highlight=False)
    console.print()
    both = [(run.base_title, run.diff.ideal), ("measured", run.diff.measured)]
    drawn = charts(both, width=console.width, colour=wants_colour(console), basic=has_few_colours(console))
    console.print(drawn, highlight=False)
    _print(
        console,
        diff_tables(run.analysis, facts=run.facts, missing=run.recording.missing, notes=run.recording.notes),
    )


def _print(console: Console, parts: list[RenderableType], *, before: bool = True) -> None:
    for index, part in enumerate(parts):
        if before or index:
            console.print()
        console.print(part, highlight=False)
