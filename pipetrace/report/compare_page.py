"""The page of a comparison: charts, the table, and the tiles of all schedules on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from pipetrace.advice import and_more
from pipetrace.compare import Comparison, Figures, Row
from pipetrace.metrics import MemorySizes
from pipetrace.report.compare_charts import sweep_figure, trade_figure
from pipetrace.report.compare_table import Column, columns_of, has_all_to_alls, heading, legend_of, unit_of
from pipetrace.report.figure import mode_for, tile_figures
from pipetrace.report.html import Bar, chart, headline, section, table, write_page
from pipetrace.report.overlap_page import HIDDEN_NOTE, bars_of_overlap
from pipetrace.report.units import TimeUnit

_HUE = {"makespan": "f", "peak": "w", "memory": "w", "exposed": "exposed", "of all": "exposed"}


def write_comparison_page(
    path: Path, comparison: Comparison, *, sizes: MemorySizes | None = None, advice: Sequence[str] = ()
) -> None:
    """Writes a comparison's page: one HTML file that needs no network.

    Args:
        path: Where to; an existing file is replaced.
        comparison: What is shown.
        sizes: Of the model, for a column of memory.
        advice: A line each.

    Raises:
        OutputError: The file cannot be written.
    """
    settings = comparison.settings
    title = f"{len({row.candidate for row in comparison.rows})} schedules of the same model"
    if comparison.per_chunk:
        title = title.replace("of the same model", "with the same costs of a stage-chunk")
    body = []
    if advice:
        body.append('<div class="advice">' + "".join(f"<p>{escape(line)}</p>" for line in advice) + "</div>")
    if comparison.variable:
        name = f"{comparison.variable} = {', '.join(setting.label for setting in settings)}"
        body.append(
            section(
                "sweep",
                f"Over {comparison.variable}",
                chart("sweep-chart", sweep_figure(comparison), f"Figures of each schedule over {name}"),
            )
        )
    else:
        rows = comparison.at(settings[0])
        body.append(headline(_headline(comparison)))
        body.append(
            section(
                "trade",
                "Time and memory",
                chart("trade-chart", trade_figure(rows, comparison), "Makespan against peak activations"),
                '<p class="note">Left and low is better. Named are those that no other schedule beats in both.</p>',
            )
        )
        body += _all_to_alls(rows, comparison)
    columns = columns_of(comparison, sizes)
    legend = f'<p class="note">{escape(legend_of(comparison))}</p>'
    body.append(section("figures", "Figures", _tables(comparison, columns), legend))
    if not comparison.variable:
        body.append(_tiles(comparison))
    write_page(path, title, heading(comparison, settings[0]), body)


def _all_to_alls(rows: Sequence[Row], comparison: Comparison) -> list[str]:
    """Hidden and exposed all-to-alls of each schedule; nothing where none is in parts."""
    unit = unit_of(comparison)
    bars = [
        (row.candidate.label, int(of.hidden.sum()), int(of.exposed.sum()))
        for row in rows
        if row.figures is not None and (of := row.figures.all_to_alls) is not None
    ]
    if not bars:
        return []
    what = "Hidden and exposed all-to-all time of each schedule, all ranks together"
    note = f"{what}. {HIDDEN_NOTE}."
    return [section("all-to-alls", "All-to-alls", chart("overlap", bars_of_overlap(bars, unit), what, note=note))]


def _headline(comparison: Comparison) -> list[tuple[str, str, str]]:
    unit = unit_of(comparison)
    built = [(row.candidate.label, row.figures) for row in comparison.rows if row.figures]

    def least(value: str) -> tuple[str, Figures]:
        best = min(getattr(of, value) for _, of in built)
        names = [label for label, of in built if getattr(of, value) == best]
        return and_more(names), next(of for _, of in built if getattr(of, value) == best)

    fast, idle, spare = least("makespan"), least("global_idle"), least("peak_freed_at_weight_grad")
    return [
        ("Shortest makespan", fast[0], unit.text(fast[1].makespan)),
        ("Least global idle", idle[0], f"{100 * idle[1].global_idle:.1f} % of p × makespan"),
        (
            "Lowest peak, freed at W",
            spare[0],
            f"{spare[1].peak_freed_at_weight_grad:g} microbatches of a full-size stage",
        ),
        *([_least_exposed(comparison, unit)] if has_all_to_alls(comparison) else []),
    ]


def _least_exposed(comparison: Comparison, unit: TimeUnit) -> tuple[str, str, str]:
    figures = [(row.candidate.label, row.figures) for row in comparison.rows if row.figures]
    built = [(label, of) for label, of in figures if of.all_to_alls is not None]
    best = min(of.exposed for _, of in built)
    names = [label for label, of in built if of.exposed == best]
    return "Least exposed all-to-all", and_more(names), f"{unit.text(best)}, Σ over ranks"


def _tables(comparison: Comparison, columns: Sequence[Column]) -> str:
    """A table for each setting; bars are to one scale in all of them."""
    most = [max((column.value(row.figures) for row in comparison.rows if row.figures), default=0) for column in columns]
    head = ["schedule", *(" ".join(filter(None, column.head)) for column in columns)]
    out = []
    for setting in comparison.settings:
        rows = [_row(row, columns, most) for row in comparison.at(setting) if row.figures]
        caption = f"{comparison.variable} = {setting.label}" if comparison.variable else "All schedules"
        refused = [row for row in comparison.at(setting) if row.error]
        notes = (f"{escape(row.candidate.label)} is not built: {escape(row.reason)}" for row in refused)
        out.append(f"<div>{table(caption, head, rows)}{''.join(f'<p class=note>{note}</p>' for note in notes)}</div>")
    return f'<div class="tables">{"".join(out)}</div>'


def _row(row: Row, columns: Sequence[Column], most: Sequence[float]) -> list[str | Bar]:
    assert row.figures is not None
    cells: list[str | Bar] = [row.candidate.label]
    for column, top in zip(columns, most, strict=True):
        value = column.value(row.figures)
        cells.append(Bar(column.text(value), value / top if top else 0.0, _HUE.get(column.head[0], "idle")))
    return cells


def _tiles(comparison: Comparison) -> str:
    unit = unit_of(comparison)
    shown = [
        (f"{escape(row.candidate.label)}, {unit.text(row.figures.makespan)}", row.figures.timeline)
        for row in comparison.rows
        if row.figures
    ]
    mode = mode_for(sum(len(timeline) for _, timeline in shown))
    figures = tile_figures(shown, mode=mode, unit=unit)
    last = len(figures) - 1
    charts = (
        chart(f"tiles-{index}" if index else "tiles", figure, "Tile charts of schedules", mode.value * (index == last))
        for index, figure in enumerate(figures)
    )
    return section("tiles-of-all", "Tiles, on one time axis", *charts)
