"""The page of one schedule: its tile chart, its bubbles and what it holds in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipetrace.action import NO_ACTION, IntArray
from pipetrace.costs import Costs
from pipetrace.metrics import Bubbles, all_to_alls, bubbles, peak_in_flight_of
from pipetrace.part_costs import LayerCosts
from pipetrace.report.figure import gaps_note, mode_for, tile_figure
from pipetrace.report.html import Bar, chart, facts, headline, section, table, write_page
from pipetrace.report.memory import frees_at_once, memory_figure
from pipetrace.report.overlap import InParts, layer_text
from pipetrace.report.overlap_page import overlap_section
from pipetrace.report.units import TimeUnit, percent, unit_for
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

GLOBAL_IDLE = "global idle = makespan - busy"
IN_SPAN_IDLE = "in-span idle = a rank's own first-to-last span - busy"


def write_schedule_page(
    path: Path, schedule: Schedule, timeline: Timeline, costs: Costs, parts: InParts | None = None
) -> None:
    """Writes a schedule's page: one HTML file that needs no network.

    Args:
        path: Where to; an existing file is replaced.
        schedule: The order.
        timeline: Its ideal.
        costs: What the ideal was simulated with.
        parts: How it came to be in parts of MoE layers, if it is.

    Raises:
        OutputError: The file cannot be written.
    """
    of, peak = bubbles(timeline), peak_in_flight_of(timeline)
    unit = unit_for(of.makespan)
    title = f"{schedule.name}, {schedule.ranks} ranks, {schedule.microbatches} microbatches"
    most = max((*peak.release_at_input_grad, *peak.release_at_weight_grad), default=0) or 1
    at_once = frees_at_once(timeline)
    conventions = [("freed at I", "i", peak.release_at_input_grad), ("freed at W", "w", peak.release_at_weight_grad)]
    if at_once:
        conventions = [("freed at B", "b", peak.release_at_weight_grad)]
    peaks: list[tuple[str | Bar, ...]] = [
        (f"rank {rank}", *(Bar(f"{held[rank]:,}", held[rank] / most, hue) for _, hue, held in conventions))
        for rank in range(schedule.ranks)
    ]
    figure = tile_figure([(f"ideal, {unit.text(of.makespan)}", timeline)])
    mode = mode_for(len(timeline))
    chunk = "a chunk is what one microbatch leaves on one stage"
    which = "" if at_once else ": freed at I / at W, once where they agree"
    reading = f"All ranks on one scale; at the right their peaks in chunks{which}."
    body = [
        headline(
            [
                ("Makespan", f"{short(of.makespan, unit)} {unit.name}", "first to last F, B, I or W"),
                ("Bubble fraction", percent(of.fraction), "Σ global idle / (p × makespan)"),
                ("Global idle", f"{short(sum(of.global_idle), unit)} {unit.name}", "Σ over ranks; makespan - busy"),
                ("In-span idle", f"{short(sum(of.in_span_idle), unit)} {unit.name}", "Σ over ranks; own span - busy"),
                (
                    "Peak in flight",
                    f"{max(peak.release_at_weight_grad):,} chunks",
                    "each freed at its B" if at_once else _peak_detail(peak.release_at_input_grad),
                ),
                *_exposed(timeline, unit),
            ]
        ),
        section(
            "schedule",
            "Tiles",
            chart("tiles", figure, f"Tile chart of {title}", mode.value, gaps_note([timeline], mode)),
            facts(facts_of(schedule, costs, unit)),
        ),
        *overlap_section(timeline, unit, parts),
        section(
            "memory",
            "Activations in flight",
            chart(
                "in-flight",
                memory_figure(timeline),
                f"Activations in flight over time on each rank of {title}",
                note=reading,
            ),
        ),
        section(
            "ranks",
            "Ranks",
            '<div class="tables">',
            bubble_table("Idle time of each rank", [("", of)], unit),
            table(
                "Most activations in flight",
                ("rank", *(f"{name} (chunks)" for name, _, _ in conventions)),
                peaks,
                note=chunk + ("; no backward is split, so that a B frees it whole" if at_once else ""),
            ),
            "</div>",
        ),
    ]
    write_page(path, title, "Ideal schedule, simulated from costs.", body)


def short(ns: int, unit: TimeUnit) -> str:
    """A time for a card, to three digits or its whole number; tables have them all.

    >>> from pipetrace.report.units import MILLISECONDS
    >>> [short(ns, MILLISECONDS) for ns in (1_657_927_000, 18_697_000, 1_250_000, 27_000_000, 12_345)]
    ['1,658', '18.7', '1.25', '27', '0.012']
    """
    value = ns / unit.ns
    decimals = next((digits for least, digits in ((99.95, 0), (9.995, 1), (0.9995, 2)) if abs(value) >= least), 3)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _exposed(timeline: Timeline, unit: TimeUnit) -> list[tuple[str, str, str]]:
    """The card of what all-to-alls are exposed; none where there are no all-to-alls."""
    of = all_to_alls(timeline)
    if not len(of.tiles):
        return []
    text = f"{short(int(of.exposed.sum()), unit)} {unit.name}"
    return [("Exposed all-to-all", text, f"Σ over ranks; {percent(of.fraction_exposed)} of all")]


def _peak_detail(at_input_grad: tuple[int, ...]) -> str:
    return f"if freed at W; {max(at_input_grad):,} if freed at I"


def facts_of(schedule: Schedule, costs: Costs, unit: TimeUnit) -> list[tuple[str, str]]:
    """What a schedule's ideal was made from."""
    default = costs.default
    text = f"F = {unit.text(default.F)}, I = {unit.text(default.I)}, W = {unit.text(default.W)}"
    text += f", B = {unit.text(default.full_backward)}"
    differ = len(costs.stages)
    if schedule.has_parts:
        text, differ = layer_text(costs.layer or LayerCosts()), len(costs.stage_layers)
    if differ:
        text += f"; {differ} of {schedule.stages} stages differ"
    placement = schedule.placement
    pairs = [
        ("placement", placement.name),
        ("stages", f"{placement.stages:,}" + (f" in each of {placement.pipes} pipes" if placement.pipes > 1 else "")),
        *([("layers", _numbers(schedule.chain.layers))] if schedule.has_parts else []),
        ("tiles", f"{len(schedule):,}"),
        ("costs", text),
        ("transfer", unit.text(costs.p2p) if costs.p2p else "free"),
    ]
    if costs.pair is not None and (schedule.partner != NO_ACTION).any():
        pairs.insert(4, ("overlapped pair", unit.text(costs.pair.duration)))
    return pairs


def _numbers(layers: IntArray) -> str:
    """Layers of a stage; of all of them where they differ."""
    each = layers.tolist()
    return f"{each[0]} a stage" if len(set(each)) == 1 else " ".join(map(str, each))


def bubble_table(
    caption: str, given: list[tuple[str, Bubbles]], unit: TimeUnit, ranks: Sequence[int] | None = None
) -> str:
    """Busy and idle times of each rank, of one or of several timelines side by side; of some ranks where given."""
    ranks = range(len(given[0][1].busy)) if ranks is None else ranks
    head, columns = ["rank"], []
    for name, field in (("busy", "busy"), ("global idle", "global_idle"), ("in-span idle", "in_span_idle")):
        values = [[getattr(of, field)[rank] for rank in ranks] for _, of in given]
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
    rows = [(f"rank {rank}", *cells) for rank, cells in zip(ranks, zip(*columns, strict=True), strict=True)]
    return table(caption, head, rows, note=f"{GLOBAL_IDLE}; {IN_SPAN_IDLE}")
