"""The page of a diff: ideal above measured, and every action's slip."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from pipetrace.action import Action, Kind, code_kind, code_text
from pipetrace.diff import Diff
from pipetrace.report import html
from pipetrace.report.figure import gaps_note, mode_for, tile_figure
from pipetrace.report.marks import FloatArray
from pipetrace.report.page import bubble_table, short
from pipetrace.report.units import TimeUnit, percent, unit_for
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

MOST_ROWS = 100_000
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
    diff: Diff,
    *,
    title: str,
    schedule: Schedule | None,
    facts: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    step_makespans: Sequence[int] = (),
    chosen_step: int = 0,
) -> None:
    """Writes a diff's page: one HTML file that needs no network.

    Args:
        path: Where to; an existing file is replaced.
        diff: What is shown.
        title: Plain text.
        schedule: What was run, where it is known.
        facts: Name and value of what the numbers were made from: workload, versions, window, source of the costs.
        notes: Warnings, a line each.
        step_makespans: ns of every measured step.
        chosen_step: Which of them is shown, from 0.

    Raises:
        OutputError: The file cannot be written.
    """
    ideal, measured = diff.ideal_bubbles, diff.measured_bubbles
    unit = unit_for(max(ideal.makespan, measured.makespan))
    figure = tile_figure(
        [
            (f"ideal, {unit.text(ideal.makespan)}", diff.ideal),
            (f"measured, {unit.text(measured.makespan)}", diff.measured),
        ],
        slips=[tile_slips(diff, diff.ideal), tile_slips(diff, diff.measured)],
    )
    known = list(facts)
    if schedule is not None:
        known.insert(0, ("schedule", f"{schedule.name}, p = {schedule.ranks}, m = {schedule.microbatches}"))
    if len(step_makespans) > 1:
        known.append(("steps measured", _steps(step_makespans, chosen_step, unit)))
    mode = mode_for(len(diff.ideal) + len(diff.measured))
    body = [
        html.headline(headline_figures(diff, unit)),
        _warnings(notes),
        _differences(diff),
        html.section(
            "tiles-section",
            "Ideal and measured",
            html.chart(
                "tiles",
                figure,
                f"Tile charts of {title}: the ideal above the measured",
                mode.value,
                gaps_note([diff.ideal, diff.measured], mode),
            ),
            html.facts(known),
        ),
        html.section(
            "ranks",
            "Ranks",
            bubble_table("Idle time of each rank", [("ideal", ideal), ("measured", measured)], unit),
        ),
        _actions(diff, unit),
    ]
    subtitle = "Ideal against measured, each from its own first action."
    html.write_page(path, title, subtitle, [part for part in body if part])


def headline_figures(diff: Diff, unit: TimeUnit) -> list[tuple[str, str, str]]:
    """Name, value and detail of the figures that a diff opens with."""
    ideal, measured = diff.ideal_bubbles, diff.measured_bubbles
    longer = measured.makespan - ideal.makespan
    share = f"{percent(longer / ideal.makespan, signed=True)} of the ideal" if ideal.makespan else "the ideal is empty"
    return [
        ("Ideal makespan", f"{short(ideal.makespan, unit)} {unit.name}", "first to last F, B, I or W"),
        ("Measured makespan", f"{short(measured.makespan, unit)} {unit.name}", "likewise"),
        (
            "Measured is longer by" if longer >= 0 else "Measured is shorter by",
            f"{short(abs(longer), unit)} {unit.name}",
            share,
        ),
        (
            "Bubble fraction",
            f"{percent(ideal.fraction).removesuffix(' %')} → {percent(measured.fraction)}",
            "ideal → measured; Σ global idle / (p × makespan)",
        ),
        (
            "In-span idle",
            f"{short(sum(ideal.in_span_idle), unit)} → {short(sum(measured.in_span_idle), unit)} {unit.name}",
            "ideal → measured; Σ (own span - busy)",
        ),
    ]


def tile_slips(diff: Diff, timeline: Timeline) -> FloatArray:
    """The slip of each tile in ns, NaN where it was not matched; of a pair its forward half's. Shape (n,)."""
    order = np.argsort(diff.code)
    codes, slip = diff.code[order], diff.slip[order]
    at = np.minimum(np.searchsorted(codes, timeline.code), max(codes.size - 1, 0))
    if not codes.size:
        return np.full(timeline.code.size, np.nan)
    return np.where((codes[at] == timeline.code) & (timeline.replica == 0), slip[at].astype(np.float64), np.nan)


def _warnings(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return '<ul class="warnings">' + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


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
