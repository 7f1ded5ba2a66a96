"""The page of a diff: ideal above measured, and every action's slip."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from pipetrace.action import Action, Kind, code_kind, code_text
from pipetrace.diff import Analysis, Diff
from pipetrace.report import html
from pipetrace.report.diff_charts import counterparts, drift_figure, waterfall_figure, worst_windows
from pipetrace.report.diff_tables import (
    Rows,
    awaited_rows,
    overlap_rows,
    path_rows,
    reference_rows,
    schedule_rows,
    stage_rows,
    waiting_rows,
    what_if_rows,
)
from pipetrace.report.figure import Mode, gaps_note, mode_for, tile_figure
from pipetrace.report.memory import memory_figure
from pipetrace.report.overlap_page import compared_overlap_section
from pipetrace.report.page import bubble_table, short
from pipetrace.report.units import TimeUnit, percent, unit_for
from pipetrace.report.verdict import verdict

MOST_ROWS = 100_000
MOST_LINES = 30_000
"""Tiles of both panels; without a GPU a browser takes a second or more to zoom 100,000 lines."""

_MOST_LISTED = 200

_COLUMNS = (
    ("action", "action"),
    ("rank", "rank"),
    ("ideal_start", "ideal start"),
    ("measured_start", "measured start"),
    ("slip", "slip of its end"),
    ("ideal_duration", "ideal duration"),
    ("measured_duration", "measured duration"),
)


def write_diff_page(
    path: Path,
    of: Analysis,
    *,
    title: str,
    facts: Sequence[tuple[str, str]] = (),
    held_against: str | None = None,
    missing: Sequence[str] = (),
    notes: Sequence[str] = (),
    step_makespans: Sequence[int] = (),
    chosen_step: int = 0,
) -> None:
    """Writes a diff's page: one HTML file that needs no network.

    Args:
        path: Where to; an existing file is replaced.
        of: What is shown.
        title: Plain text.
        facts: Name and value of what the numbers were made from: workload, versions, window, source of the costs.
        held_against: That the run says it ran something else; stands before the verdict.
        missing: What was not found, a line each.
        notes: What was mended or assumed, a line each.
        step_makespans: ns of every measured step.
        chosen_step: Which of them is shown, from 0.

    Raises:
        OutputError: The file cannot be written.
    """
    diff = of.of
    first = "before" if of.before else "ideal"
    unit = unit_for(max(diff.ideal_bubbles.makespan, diff.measured_bubbles.makespan))
    known = [("schedule", f"{of.schedule.name}, p = {of.schedule.ranks}, m = {of.schedule.microbatches}"), *facts]
    if len(step_makespans) > 1:
        known.append(("steps measured", _steps(step_makespans, chosen_step, unit)))
    body = [
        html.headline(headline_figures(diff, unit, first)),
        _lines("warnings", [] if held_against is None else [held_against]),
        _verdict(of, unit),
        _lines("warnings", missing),
        _lines("notes", notes),
        _differences(diff),
        _waterfall(of, unit) if of.one_clock else "",
        _tiles(of, title, first, unit, html.facts(known)),
        _worst(of) if of.one_clock else "",
        _waits(of, unit) if of.one_clock else "",
        compared_overlap_section(diff.ideal, diff.measured, unit, first, of.schedule),
        _memory(of, title, first),
        _tables(of, unit),
        html.section(
            "ranks",
            "Ranks",
            bubble_table(
                "Idle time of each rank",
                [(first, diff.ideal_bubbles), ("measured", diff.measured_bubbles)],
                unit,
                diff.recorded,
            ),
        ),
        _actions(diff, unit),
    ]
    subtitle = f"{'Two measured steps' if of.before else 'Ideal against measured'}, each from its own first action."
    html.write_page(path, title, subtitle, [part for part in body if part])


def _verdict(of: Analysis, unit: TimeUnit) -> str:
    first, *rest = verdict(of, unit)
    text = f"<p><strong>{escape(first)}</strong></p>" + "".join(f"<p>{escape(sentence)}</p>" for sentence in rest)
    return html.section("verdict", "Verdict", f'<div class="verdict">{text}</div>')


def _table(rows: Rows) -> str:
    return html.table(rows.name, rows.head, rows.rows, note=rows.caption) if rows.rows else ""


def _waterfall(of: Analysis, unit: TimeUnit) -> str:
    note = "What each adds to the makespan, in the order in which it was put in; the bars sum exactly."
    if of.waterfall.deviation:
        note += f" Replaying what was measured is off by up to {unit.text(of.waterfall.deviation)} for an action."
    notes = "".join(f"<p class='hint'>{escape(line)}</p>" for line in of.waterfall.notes)
    return html.section(
        "waterfall-section",
        "Where the time goes",
        html.chart(
            "waterfall", waterfall_figure(of, unit), "Waterfall from the ideal to the measured makespan", note=note
        ),
        notes,
        '<div class="tables">',
        _table(reference_rows(of, unit)),
        _table(path_rows(of, unit)),
        "</div>",
    )


def _tiles(of: Analysis, title: str, first: str, unit: TimeUnit, facts: str) -> str:
    diff = of.of
    ideal, measured = diff.ideal_bubbles.makespan, diff.measured_bubbles.makespan
    mode = _mode(diff)
    beside = None
    if mode is not Mode.HEATMAP:
        beside = [
            counterparts(diff, diff.ideal, unit, other="measured"),
            counterparts(diff, diff.measured, unit, other=first),
        ]
    panels = [(f"{first}, {unit.text(ideal)}", diff.ideal), (f"measured, {unit.text(measured)}", diff.measured)]
    figure = tile_figure(panels, beside=beside, mode=mode)
    name = "Before and after" if of.before else "Ideal and measured"
    note = gaps_note([diff.ideal, diff.measured], mode)
    return html.section(
        "tiles-section",
        name,
        html.chart("tiles", figure, f"Tile charts of {title}: the {first} above the measured", mode.value, note),
        html.chart(
            "drift",
            drift_figure(diff, unit),
            f"Drift of each rank of {title}",
            note="How late each rank's actions ended; it zooms with the tiles.",
        ),
        facts,
    )


def _mode(diff: Diff) -> Mode:
    """As `mode_for`, but lines give way earlier: two panels are zoomed at once, and close-ups stand beside them."""
    tiles = len(diff.ideal) + len(diff.measured)
    return Mode.HEATMAP if tiles > MOST_LINES else mode_for(tiles)


def _worst(of: Analysis) -> str:
    """Close-ups where the tiles are too many to be seen each."""
    diff = of.of
    if _mode(diff) is Mode.BARS:
        return ""
    charts = []
    for number, (what, ideal, measured) in enumerate(worst_windows(of)):
        unit = unit_for(measured.makespan)
        beside = [counterparts(diff, ideal, unit, other="measured"), counterparts(diff, measured, unit, other="ideal")]
        figure = tile_figure(
            [("the same actions in the ideal", ideal), (f"measured: {what}", measured)], beside=beside, mode=Mode.BARS
        )
        figure.update_layout(meta={})
        charts.append(html.chart(f"worst-{number}", figure, f"Close-up: {what}", Mode.BARS.value))
    if not charts:
        return ""
    hint = "<p class='hint'>Where single actions lost most against what bound them, each from its own first action.</p>"
    return html.section("worst", "The worst places close up", hint, *charts)


def _waits(of: Analysis, unit: TimeUnit) -> str:
    return html.section(
        "waits",
        "Waiting",
        '<div class="tables">',
        _table(waiting_rows(of, unit)),
        _table(awaited_rows(of, unit)),
        "</div>",
    )


def _memory(of: Analysis, title: str, first: str) -> str:
    charts = [
        html.chart(
            f"in-flight-{name}",
            memory_figure(timeline),
            f"Activations in flight of {title}, {name}",
            note=f"Activations in flight, {name}, in chunks; all ranks on one scale.",
        )
        for name, timeline in ((first, of.of.ideal), ("measured", of.of.measured))
    ]
    return html.section("memory", "Memory", *charts)


def _tables(of: Analysis, unit: TimeUnit) -> str:
    makers = [stage_rows, overlap_rows]
    if of.one_clock:
        makers = [what_if_rows, schedule_rows, *makers]
    return html.section(
        "what-if",
        "What if, and how stages compare",
        '<div class="tables">',
        *(_table(make(of, unit)) for make in makers),
        "</div>",
    )


def headline_figures(diff: Diff, unit: TimeUnit, first: str = "ideal") -> list[tuple[str, str, str]]:
    """Name, value and detail of the figures that a diff opens with."""
    ideal, measured = diff.ideal_bubbles, diff.measured_bubbles
    fractions, in_span = diff.bubble_fractions, diff.in_span_idle
    longer = measured.makespan - ideal.makespan
    of_first = "the ideal" if first == "ideal" else "what was before"
    share = (
        f"{percent(longer / ideal.makespan, signed=True)} of {of_first}" if ideal.makespan else f"{of_first} is empty"
    )
    return [
        (
            "Ideal makespan" if first == "ideal" else "Makespan before",
            f"{short(ideal.makespan, unit)} {unit.name}",
            "first to last F, B, I or W",
        ),
        ("Measured makespan", f"{short(measured.makespan, unit)} {unit.name}", "likewise"),
        (
            "Measured is longer by" if longer >= 0 else "Measured is shorter by",
            f"{short(abs(longer), unit)} {unit.name}",
            share,
        ),
        (
            "Bubble fraction",
            f"{percent(fractions[0]).removesuffix(' %')} → {percent(fractions[1])}",
            f"{first} → measured; Σ global idle / (p × makespan)",
        ),
        (
            "In-span idle",
            f"{short(in_span[0], unit)} → {short(in_span[1], unit)} {unit.name}",
            f"{first} → measured; Σ (own span - busy)",
        ),
    ]


def _lines(kind: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _differences(diff: Diff) -> str:
    parts = []
    for name, found, meaning in (
        ("Missing", diff.missing, "in the ideal, not measured"),
        ("Extra", diff.extra, "measured, not in the ideal"),
        ("Reordered", diff.reordered, "measured at another place of their rank's list; the fewest that explain it"),
    ):
        if found:
            listed = " ".join(f"<code>{escape(str(action))}</code>" for action in found[:_MOST_LISTED])
            more = f" and {len(found) - _MOST_LISTED:,} more" if len(found) > _MOST_LISTED else ""
            parts.append(f"<p><strong>{name}: {len(found):,}</strong> ({meaning}): {listed}{more}</p>")
    if not parts:
        return ""
    return html.section("differences", "Actions that do not match", '<div class="lists">', *parts, "</div>")


def _steps(makespans: Sequence[int], chosen: int, unit: TimeUnit) -> str:
    texts = [
        f"{number}{' (shown)' if step == chosen else ''}"
        for step, number in enumerate(unit.column(list(makespans)[:20]))
    ]
    if len(makespans) > 20:
        texts.append(f"… {len(makespans)} in all, step {chosen} shown")
    return f"{', '.join(texts)} {unit.name}"


def _actions(diff: Diff, unit: TimeUnit) -> str:
    """The table of actions; its rows are made by the page's script from columns that are embedded once."""
    order = np.argsort(-diff.slip, kind="stable")[:MOST_ROWS]
    code = diff.code[order]
    columns: dict[str, list[int] | list[str]] = {
        "action": [code_text(value) for value in code.tolist()],
        "kind": [Kind(value).name for value in code_kind(code).tolist()],
    }
    named = {
        "rank": diff.rank,
        "ideal_start": diff.ideal_start,
        "measured_start": diff.measured_start,
        "slip": diff.slip,
        "ideal_duration": diff.ideal_duration,
        "measured_duration": diff.measured_duration,
    }
    columns.update({name: column[order].tolist() for name, column in named.items()})
    head = "".join(
        f'<th scope="col" data-key="{key}"><button type="button">{name}'
        f"{'' if key in ('action', 'rank') else f' ({unit.name})'}</button></th>"
        for key, name in _COLUMNS
    )
    ranks = "".join(f'<option value="{rank}">rank {rank}</option>' for rank in np.unique(diff.rank).tolist())
    kinds = "".join(f"<option>{Kind(kind).name}</option>" for kind in np.unique(code_kind(diff.code)).tolist())
    decimals = max(unit.decimals(named[name].tolist()) for name in named if name != "rank")
    cut = ""
    if diff.code.size > MOST_ROWS:
        cut = f"The page holds the {MOST_ROWS:,} worst slips of {diff.code.size:,} actions; the JSON has all. "
    example = escape(str(Action.from_code(int(code[0]))))
    return html.section(
        "actions",
        "Actions",
        f'<div class="actions"><p class="hint">{cut}Slip: how much later an action ended than in the ideal. '
        "Click a heading to sort.</p>"
        f'<div class="controls"><label>Rank <select data-filter="rank"><option value="">all</option>{ranks}</select>'
        f'</label><label>Kind <select data-filter="kind"><option value="">all</option>{kinds}</select></label>'
        f'<label>Action has <input data-filter="text" type="search" size="10" placeholder="{example}"></label>'
        '<span class="hint" data-count role="status"></span></div>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Table of actions"><table>'
        "<caption>Each matched action, ideal and measured</caption>"
        f"<thead><tr>{head}</tr></thead><tbody></tbody></table></div>"
        '<p class="more"><button type="button" data-more>Show more</button></p></div>',
        html.data("actions-data", {"unit": unit.ns, "decimals": decimals, "columns": columns}),
    )
