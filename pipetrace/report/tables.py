"""The figures of a schedule and of a diff as tables for the terminal; they fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import Action, code_text
from pipetrace.diff import Diff
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.report.units import percent, unit_for
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORST = 10
_MOST_LISTED = 12


def schedule_tables(schedule: Schedule, timeline: Timeline) -> list[RenderableType]:
    """Headline, then the bubbles and the peak activations of each rank.

    Args:
        schedule: The order.
        timeline: Its ideal.
    """
    of, peak = bubbles(timeline), peak_in_flight(schedule)
    unit = unit_for(of.makespan)
    pairs = [
        ("schedule", f"{schedule.name}, p = {schedule.ranks}, m = {schedule.microbatches}"),
        ("makespan", unit.text(of.makespan)),
        ("bubble fraction", f"{percent(of.fraction)}  (Σ global idle / (p × makespan))"),
        ("global idle", f"{unit.text(sum(of.global_idle))}  (Σ of makespan - busy)"),
        ("in-span idle", f"{unit.text(sum(of.in_span_idle))}  (Σ of own first-to-last span - busy)"),
    ]
    head = ["rank", "busy", "global idle", "in-span idle", "peak, freed at I", "peak, freed at W"]
    columns = [
        [str(rank) for rank in range(schedule.ranks)],
        *(unit.column(column) for column in (of.busy, of.global_idle, of.in_span_idle)),
        *([f"{chunks:,}" for chunks in column] for column in (peak.release_at_input_grad, peak.release_at_weight_grad)),
    ]
    caption = f"times in {unit.name}; peaks: most activations in flight, in chunks"
    return [named_values(pairs), table_of(head, list(zip(*columns, strict=True)), caption)]


def diff_tables(
    diff: Diff, *, facts: Sequence[tuple[str, str]] = (), notes: Sequence[str] = ()
) -> list[RenderableType]:
    """Headline, what does not match, the bubbles of each rank, and the worst slips.

    Args:
        diff: What is shown.
        facts: Name and value of what the figures rest on.
        notes: Warnings, a line each.
    """
    from rich.text import Text

    ideal, measured = diff.ideal_bubbles, diff.measured_bubbles
    unit = unit_for(max(ideal.makespan, measured.makespan))
    longer = measured.makespan - ideal.makespan
    share = f"  ({percent(longer / ideal.makespan, signed=True)})" if ideal.makespan else ""
    out: list[RenderableType] = [
        named_values(
            [
                ("ideal makespan", unit.text(ideal.makespan)),
                ("measured makespan", unit.text(measured.makespan)),
                ("measured - ideal", f"{unit.text(longer, signed=True)}{share}"),
                (
                    "bubble fraction",
                    f"ideal {percent(ideal.fraction)}, measured {percent(measured.fraction)}"
                    "  (global idle / (p × makespan))",
                ),
                (
                    "in-span idle",
                    f"ideal {unit.text(sum(ideal.in_span_idle))}, measured {unit.text(sum(measured.in_span_idle))}"
                    "  (Σ over ranks)",
                ),
                *facts,
            ]
        )
    ]
    if notes:
        out.append(Text("\n".join(f"! {note}" for note in notes), "yellow"))
    for name, found in (("missing", diff.missing), ("extra", diff.extra), ("reordered", diff.reordered)):
        if found:
            out.append(Text.assemble((f"{name} ({len(found):,}): ", "bold"), _listed(found)))
    head = ["rank"]
    columns = [[str(rank) for rank in range(diff.ideal.ranks)]]
    for name, field in (("busy", "busy"), ("global idle", "global_idle"), ("in-span idle", "in_span_idle")):
        left, right = getattr(ideal, field), getattr(measured, field)
        both = unit.column([*left, *right])
        head += [f"{name}\nideal", f"{name}\nmeasured"]
        columns += [both[: len(left)], both[len(left) :]]
    out.append(table_of(head, list(zip(*columns, strict=True)), f"idle time of each rank in {unit.name}"))
    worst = np.argsort(-diff.slip, kind="stable")[:WORST]
    out.append(
        table_of(
            ["action", "rank", "ideal\nstart", "measured\nstart", "ideal\nduration", "measured\nduration", "slip"],
            list(
                zip(
                    [code_text(code) for code in diff.code[worst].tolist()],
                    [str(rank) for rank in diff.rank[worst].tolist()],
                    unit.column(diff.ideal_start[worst].tolist()),
                    unit.column(diff.measured_start[worst].tolist()),
                    unit.column(diff.ideal_duration[worst].tolist()),
                    unit.column(diff.measured_duration[worst].tolist()),
                    unit.column(diff.slip[worst].tolist(), signed=True),
                    strict=True,
                )
            ),
            f"the {worst.size} worst slips in {unit.name}: how much later an action ended than in the ideal",
        )
    )
    return out


def named_values(pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and their values, one a line, without markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for name, value in pairs:
        # As text: what a user named is no markup.
        table.add_row(Text(name), Text(value))
    return table


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """A table whose first column is a name and whose others are figures, without markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, caption=Text(caption), caption_justify="left", pad_edge=False, show_edge=False)
    for index, name in enumerate(head):
        table.add_column(
            Text(name), justify="left" if index == 0 else "right", min_width=len(max(name.split(), key=len))
        )
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    return table


def _listed(actions: Sequence[Action]) -> str:
    more = f" and {len(actions) - _MOST_LISTED:,} more" if len(actions) > _MOST_LISTED else ""
    return " ".join(map(str, actions[:_MOST_LISTED])) + more
