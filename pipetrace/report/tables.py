"""The figures of a schedule and of a diff as tables for the terminal; they fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import Action, Kind, code_text
from pipetrace.costs import Costs
from pipetrace.diff import Analysis
from pipetrace.metrics import ALL_FREED_AT, MemorySizes, bubbles, memory_over_time, peak_in_flight_of, phases
from pipetrace.report.causes import cause_tables
from pipetrace.report.diff_tables import (
    awaited_rows,
    path_rows,
    reference_rows,
    waiting_rows,
    waterfall_rows,
    what_if_rows,
)
from pipetrace.report.layout import named_values, table_of
from pipetrace.report.overlap import InParts, compared_overlap, overlap_tables
from pipetrace.report.reordering import reordering_line
from pipetrace.report.units import TimeUnit, percent, size_unit_for, unit_for
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

WORST = 10
_MOST_LISTED = 12


def schedule_tables(
    schedule: Schedule,
    timeline: Timeline,
    *,
    costs: Costs | None = None,
    sizes: MemorySizes | None = None,
    verbose: bool = False,
    waiting: Waiting | None = None,
    parts: InParts | None = None,
) -> list[RenderableType]:
    """Headline, the bubbles and peak activations of each rank, its idle time by phase, and what it holds.

    Args:
        schedule: The order.
        timeline: Its ideal.
        costs: What it was simulated with, for `verbose`.
        sizes: How large things are, for a table of memory in bytes beside the activations in chunks.
        verbose: Also says what idle time waited for, and shows the critical path.
        waiting: How it was simulated to wait; where that may leave the list order, what this brings is said.
        parts: How it came to be in parts of MoE layers, if it is.
    """
    of, peak = bubbles(timeline), peak_in_flight_of(timeline)
    unit = unit_for(of.makespan)
    pairs = [
        ("schedule", f"{schedule.name}, p = {schedule.ranks}, m = {schedule.microbatches}"),
        ("makespan", unit.text(of.makespan)),
        ("bubble fraction", f"{percent(of.fraction)}  (Σ global idle / (p × makespan))"),
        ("global idle", f"{unit.text(sum(of.global_idle))}  (Σ of makespan - busy)"),
        ("in-span idle", f"{unit.text(sum(of.in_span_idle))}  (Σ of own first-to-last span - busy)"),
    ]
    if waiting is not None and (line := reordering_line(schedule, costs or Costs(), waiting, timeline)) is not None:
        pairs.insert(2, ("reordering", line))
    head = ["rank", "busy", "global idle", "in-span idle", "peak, freed at I", "peak, freed at W"]
    columns = [
        [str(rank) for rank in range(schedule.ranks)],
        *(unit.column(column) for column in (of.busy, of.global_idle, of.in_span_idle)),
        *([f"{chunks:,}" for chunks in column] for column in (peak.release_at_input_grad, peak.release_at_weight_grad)),
    ]
    caption = f"times in {unit.name}; peaks: most activations in flight, in chunks"
    out: list[RenderableType] = [named_values(pairs), table_of(head, list(zip(*columns, strict=True)), caption)]
    out.append(phase_table(timeline, unit))
    out += overlap_tables(timeline, unit, parts)
    if sizes is not None:
        out.append(memory_table(timeline, sizes))
    if verbose:
        out += cause_tables(schedule, timeline, unit, costs)
    return out


def phase_table(timeline: Timeline, unit: TimeUnit) -> RenderableType:
    """Idle time of each rank while it warms up, in its steady state and while it drains; and its mean activations."""
    of = phases(timeline)
    head = ["rank", "warm-up\nglobal", "warm-up\nin-span", "steady", "drain\nglobal", "drain\nin-span"]
    times = (
        of.global_idle.warm_up,
        of.in_span_idle.warm_up,
        of.global_idle.steady,
        of.global_idle.drain,
        of.in_span_idle.drain,
    )
    means = [memory_over_time(timeline, ALL_FREED_AT[kind]).mean for kind in (Kind.I, Kind.W)]
    columns = [
        [str(rank) for rank in range(timeline.ranks)],
        *(unit.column(column) for column in times),
        *([f"{mean:,.2f}" for mean in column] for column in means),
    ]
    head += ["mean,\nfreed at I", "mean,\nfreed at W"]
    caption = (
        f"idle in {unit.name}: warm-up to a rank's first backward, drain from its last forward;\n"
        "means: activations in flight over the makespan, in chunks"
    )
    return table_of(head, list(zip(*columns, strict=True)), caption)


def memory_table(timeline: Timeline, sizes: MemorySizes) -> RenderableType:
    """What each rank holds: its parameters, and with them the mean and the peak."""
    held = memory_over_time(timeline, sizes)
    unit = size_unit_for(max(held.peak, default=0), held.unit)
    columns = [
        [str(rank) for rank in range(timeline.ranks)],
        *(unit.column(column) for column in (held.parameters, held.mean, held.peak)),
    ]
    caption = f"memory in {unit.name}"
    return table_of(
        ["rank", "parameters", "mean, with these", "peak, with these"], list(zip(*columns, strict=True)), caption
    )


def diff_tables(
    of: Analysis,
    *,
    facts: Sequence[tuple[str, str]] = (),
    missing: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> list[RenderableType]:
    """Headline, what does not match, where the step goes, the bubbles of each rank, and the worst slips.

    Args:
        of: What is shown.
        facts: Name and value of what the figures rest on.
        missing: What was not found, a line each.
        notes: What was mended or assumed, a line each.
    """
    from rich.text import Text

    diff = of.of
    first = "before" if of.before else "ideal"
    ideal, measured = diff.ideal_bubbles, diff.measured_bubbles
    fractions, in_span = diff.bubble_fractions, diff.in_span_idle
    unit = unit_for(max(ideal.makespan, measured.makespan))
    longer = measured.makespan - ideal.makespan
    share = f"  ({percent(longer / ideal.makespan, signed=True)})" if ideal.makespan else ""
    out: list[RenderableType] = [
        named_values(
            [
                (f"{first} makespan", unit.text(ideal.makespan)),
                ("measured makespan", unit.text(measured.makespan)),
                (f"measured - {first}", f"{unit.text(longer, signed=True)}{share}"),
                (
                    "bubble fraction",
                    f"{first} {percent(fractions[0])}, measured {percent(fractions[1])}"
                    "  (global idle / (p × makespan))",
                ),
                (
                    "in-span idle",
                    f"{first} {unit.text(in_span[0])}, measured {unit.text(in_span[1])}  (Σ over ranks)",
                ),
                *facts,
            ]
        )
    ]
    if missing:
        out.append(Text("\n".join(f"! {line}" for line in missing), "yellow"))
    if notes:
        out.append(Text("\n".join(f"note: {line}" for line in notes)))
    for name, found in (("missing", diff.missing), ("extra", diff.extra), ("reordered", diff.reordered)):
        if found:
            out.append(Text.assemble((f"{name} ({len(found):,}): ", "bold"), _listed(found)))
    if of.one_clock:
        tables = (waterfall_rows, reference_rows, waiting_rows, awaited_rows, what_if_rows, path_rows)
        out += [table_of(rows.head, rows.rows, rows.caption) for make in tables if (rows := make(of, unit)).rows]
    head = ["rank"]
    ranks = diff.recorded
    columns = [[str(rank) for rank in ranks]]
    for name, field in (("busy", "busy"), ("global idle", "global_idle"), ("in-span idle", "in_span_idle")):
        left, right = ([getattr(bubbles, field)[rank] for rank in ranks] for bubbles in (ideal, measured))
        both = unit.column([*left, *right])
        head += [f"{name}\n{first}", f"{name}\nmeasured"]
        columns += [both[: len(left)], both[len(left) :]]
    out.append(table_of(head, list(zip(*columns, strict=True)), f"idle time of each rank in {unit.name}"))
    out += compared_overlap(diff.ideal, diff.measured, unit, of.schedule, first)
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


def _listed(actions: Sequence[Action]) -> str:
    more = f" and {len(actions) - _MOST_LISTED:,} more" if len(actions) > _MOST_LISTED else ""
    return " ".join(map(str, actions[:_MOST_LISTED])) + more
