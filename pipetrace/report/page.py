"""The page of one schedule: its tile chart, its bubbles and what it holds in memory."""

from __future__ import annotations

from pathlib import Path

from pipetrace.action import NO_ACTION
from pipetrace.costs import Costs
from pipetrace.metrics import Bubbles, bubbles, peak_in_flight
from pipetrace.report.figure import mode_for, tile_figure
from pipetrace.report.html import Bar, chart, facts, headline, section, table, write_page
from pipetrace.report.memory import memory_figure
from pipetrace.report.units import TimeUnit, percent, unit_for
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

GLOBAL_IDLE = "global idle = makespan - busy"
IN_SPAN_IDLE = "in-span idle = a rank's own first-to-last span - busy"


def write_schedule_page(path: Path, schedule: Schedule, timeline: Timeline, costs: Costs) -> None:
    """Writes a schedule's page: one HTML file that needs no network.

    Args:
        path: Where to; an existing file is replaced.
        schedule: The order.
        timeline: Its ideal.
        costs: What the ideal was simulated with.

    Raises:
        OutputError: The file cannot be written.
    """
    of, peak = bubbles(timeline), peak_in_flight(schedule)
    unit = unit_for(of.makespan)
    title = f"{schedule.name}, {schedule.ranks} ranks, {schedule.microbatches} microbatches"
    most = max((*peak.release_at_input_grad, *peak.release_at_weight_grad), default=0) or 1
    peaks = [
        (
            f"rank {rank}",
            Bar(f"{at_i:,}", at_i / most, "i"),
            Bar(f"{at_w:,}", at_w / most, "w"),
        )
        for rank, (at_i, at_w) in enumerate(zip(peak.release_at_input_grad, peak.release_at_weight_grad, strict=True))
    ]
    figure = tile_figure([(f"ideal, {unit.text(of.makespan)}", timeline)])
    body = [
        headline(
            [
                ("Makespan", unit.text(of.makespan), "first to last F, B, I or W"),
                ("Bubble fraction", percent(of.fraction), "Σ global idle / (p × makespan)"),
                ("Global idle", unit.text(sum(of.global_idle)), "Σ over ranks; makespan - busy"),
                ("In-span idle", unit.text(sum(of.in_span_idle)), "Σ over ranks; own span - busy"),
                (
                    "Peak in flight",
                    f"{max(peak.release_at_weight_grad):,} chunks",
                    _peak_detail(peak.release_at_input_grad),
                ),
            ]
        ),
        section(
            "schedule",
            "Tiles",
            chart("tiles", figure, f"Tile chart of {title}", mode_for(len(timeline)).value),
            facts(facts_of(schedule, costs, unit)),
        ),
        section(
            "memory",
            "Activations in flight",
            chart("in-flight", memory_figure(timeline), f"Activations in flight over time on each rank of {title}"),
        ),
        section(
            "ranks",
            "Ranks",
            '<div class="tables">',
            bubble_table("Idle time of each rank", [("", of)], unit),
            table(
                "Most activations in flight",
                ("rank", "freed at I (chunks)", "freed at W (chunks)"),
                peaks,
                note="a chunk is what one microbatch leaves on one stage",
            ),
            "</div>",
        ),
    ]
    write_page(path, title, "Ideal schedule, simulated from costs.", body)


def _peak_detail(at_input_grad: tuple[int, ...]) -> str:
    return f"if freed at W; {max(at_input_grad):,} if freed at I"


def facts_of(schedule: Schedule, costs: Costs, unit: TimeUnit) -> list[tuple[str, str]]:
    """What a schedule's ideal was made from."""
    default = costs.default
    text = f"F = {unit.text(default.F)}, I = {unit.text(default.I)}, W = {unit.text(default.W)}"
    text += f", B = {unit.text(default.full_backward)}"
    if costs.stages:
        text += f"; {len(costs.stages)} of {schedule.stages} stages differ"
    placement = schedule.placement
    pairs = [
        ("placement", placement.name),
        ("stages", f"{placement.stages:,}" + (f" in each of {placement.pipes} pipes" if placement.pipes > 1 else "")),
        ("tiles", f"{len(schedule):,}"),
        ("costs", text),
        ("transfer", unit.text(costs.p2p) if costs.p2p else "free"),
    ]
    if costs.pair is not None and (schedule.partner != NO_ACTION).any():
        pairs.insert(4, ("overlapped pair", unit.text(costs.pair.duration)))
    return pairs


def bubble_table(caption: str, given: list[tuple[str, Bubbles]], unit: TimeUnit) -> str:
    """Busy and idle times of each rank, of one or of several timelines side by side."""
    head, columns = ["rank"], []
    for name, field in (("busy", "busy"), ("global idle", "global_idle"), ("in-span idle", "in_span_idle")):
        values = [getattr(of, field) for _, of in given]
        decimals = max(unit.decimals(column) for column in values)
        most = max((of.makespan for _, of in given), default=0) or 1
        for (label, _), column in zip(given, values, strict=True):
            head.append(f"{name}{', ' if label else ''}{label} ({unit.name})")
            columns.append(
                [
                    Bar(f"{value / unit.ns:,.{decimals}f}", value / most, "f" if field == "busy" else "idle")
                    for value in column
                ]
            )
    rows = [(f"rank {rank}", *cells) for rank, cells in enumerate(zip(*columns, strict=True))]
    return table(caption, head, rows, note=f"{GLOBAL_IDLE}; {IN_SPAN_IDLE}")
