"""Charts of a diff beside its tiles: the waterfall, the drift of each rank, and the worst places close up."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import IntArray, code_text
from pipetrace.diff import Analysis, Diff
from pipetrace.diff.slip import Slips
from pipetrace.report.bars import MARGINS
from pipetrace.report.colours import HUES, RANK_HUES, WHITE, Group
from pipetrace.report.diff_tables import waterfall_steps
from pipetrace.report.figure import FONT, GRID, INK, LEGEND, PLOT, time_axis
from pipetrace.report.marks import FloatArray
from pipetrace.report.units import TimeUnit
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_WINDOWS = 3
WINDOW_TILES = 400
"""Measured F, B, I and W of a close-up: as many as have room for their labels."""

_LABEL = 34  # characters of a waterfall bar's name on a line
_MOST_POINTS = 12_000  # of all ranks' drift
_DASHES = ("solid", "dash", "dot")
_MOST_TOLD_APART = 16  # lines, by hue and dashes


def waterfall_figure(of: Analysis, unit: TimeUnit) -> Figure:
    """A bar for everything that lengthens or shortens the step, from the ideal's makespan to the measured."""
    import plotly.graph_objects as go

    steps = waterfall_steps(of)
    steps = [steps[0], *(step for step in steps[1:-1] if step[1]), steps[-1]]
    names = [name for name, _, _ in steps]
    ends = [total for _, _, total in steps]
    whole = (0, len(steps) - 1)
    texts = [
        f"{unit.number(total)}" if i in whole else unit.number(size, signed=True)
        for i, (_, size, total) in enumerate(steps)
    ]
    colours = [
        HUES[Group.F].base if i in whole else HUES[Group.B].base if size > 0 else HUES[Group.W].base
        for i, (_, size, _) in enumerate(steps)
    ]
    begins = [0 if i in whole else total - size for i, (_, size, total) in enumerate(steps)]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=list(range(len(steps))),
            base=[begin / unit.ns for begin in begins],
            x=[(end - begin) / unit.ns for begin, end in zip(begins, ends, strict=True)],
            marker={"color": colours},
            text=texts,
            textposition="outside",
            cliponaxis=False,
            customdata=texts,
            hovertext=names,
            hovertemplate="%{hovertext}<br>%{customdata} " + unit.name + "<extra></extra>",
            showlegend=False,
        )
    )
    # Where the changes are small against the whole they are what is to be seen: the axis then begins further right.
    least = min((min(begin, end) for begin, end in zip(begins[1:-1], ends[1:-1], strict=True)), default=0)
    most = max(ends)
    cut = least * 0.9 if least > 0.6 * most else 0.0
    figure.update_layout(
        template="none",
        height=60 + 26 * len(steps),
        margin={"l": 250, "r": 90, "t": 10, "b": 48},
        paper_bgcolor=WHITE,
        plot_bgcolor=PLOT,
        font={"family": FONT, "size": 12, "color": INK},
        bargap=0.25,
        xaxis={
            "title": {"text": f"makespan ({unit.name})" + (", cut off at the left" if cut else ""), "standoff": 6},
            "range": [cut / unit.ns, most * 1.02 / unit.ns],
            "gridcolor": GRID,
            "zeroline": False,
            "tickformat": ",.12~g",
        },
        yaxis={
            "tickvals": list(range(len(steps))),
            "ticktext": ["<br>".join(wrap(name, _LABEL)) for name in names],
            "range": [len(steps) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "ticks": "",
        },
    )
    return figure


def drift_figure(of: Diff, unit: TimeUnit) -> Figure:
    """How late each rank is at each time of the measured step, a line a rank."""
    import plotly.graph_objects as go

    figure = go.Figure()
    ranks = np.unique(of.rank).tolist()
    for look, rank in zip(_looks(len(ranks)), ranks, strict=True):
        mine = np.flatnonzero(of.rank == rank)
        mine = mine[np.argsort(of.measured_end[mine], kind="stable")]
        mine = mine[_spread(mine.size, max(100, _MOST_POINTS // len(ranks)))]
        figure.add_trace(
            go.Scattergl(
                x=of.measured_end[mine] / unit.ns,
                y=of.slip[mine] / unit.ns,
                mode="lines",
                line=look,
                name=f"rank {rank}",
                showlegend=len(ranks) <= _MOST_TOLD_APART,
                hovertemplate=f"rank {rank}<br>%{{x:,.3~f}} {unit.name}<br>late by %{{y:+,.3~f}} {unit.name}"
                "<extra></extra>",
            )
        )
    figure.update_layout(
        template="none",
        height=300,
        margin={**MARGINS, "t": 44, "b": 48},
        paper_bgcolor=WHITE,
        plot_bgcolor=PLOT,
        font={"family": FONT, "size": 12, "color": INK},
        hovermode="closest",
        meta={"time": True},
        legend=LEGEND,
        xaxis=time_axis((max(of.measured_bubbles.makespan, of.ideal_bubbles.makespan) or 1) / unit.ns, unit),
        yaxis={
            "title": {"text": f"slip ({unit.name})", "standoff": 4},
            "gridcolor": GRID,
            "zeroline": True,
            "zerolinecolor": "#9c9ca3",
            "fixedrange": True,
            "tickformat": ",.6~g",
        },
    )
    return figure


def _looks(ranks: int) -> list[dict[str, object]]:
    """How each rank's line is drawn: told apart by hue and dashes, and where there are too many, from dark to light."""
    from plotly.colors import sample_colorscale

    if ranks <= _MOST_TOLD_APART:
        return [
            {"color": RANK_HUES[i % len(RANK_HUES)], "width": 2, "dash": _DASHES[i // len(RANK_HUES)]}
            for i in range(ranks)
        ]
    # Neighbours look alike, as they are.
    colours = sample_colorscale("Cividis", [0.3 + 0.55 * i / (ranks - 1) for i in range(ranks)])
    return [{"color": colour, "width": 1.5} for colour in colours]


def _spread(size: int, most: int) -> IntArray:
    """At most so many indexes of a series of that many points, its ends among them."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(np.int64))


def worst_windows(of: Analysis) -> list[tuple[str, Timeline, Timeline]]:
    """Where the most time is lost: what it is, and the same actions around it in the ideal and as measured.

    What an action adds to the slip of what bound it: longer itself, longer under way, or a gap.
    """
    slips, measured = of.slips, of.measured
    work = of.work
    added = (slips.growth + slips.transfer + slips.gap)[slips.row]
    tiles = measured.where(measured.is_compute)
    if not len(tiles) or not added.size:
        return []
    begins = np.sort(tiles.start)
    half = WINDOW_TILES // 2
    found: list[tuple[str, Timeline, Timeline]] = []
    taken: list[tuple[int, int]] = []
    for at in np.argsort(-added, kind="stable")[:1_000].tolist():
        if added[at] <= 0 or len(found) == MOST_WINDOWS:
            break
        row = int(slips.row[at])
        start = int(of.seen.start[row])
        middle = int(np.searchsorted(begins, start))
        low, high = int(begins[max(0, middle - half)]), int(begins[min(begins.size - 1, middle + half)])
        if any(low < end and begin < high for begin, end in taken):
            continue
        taken.append((low, high))
        shown = tiles.where((tiles.start >= low) & (tiles.start <= high))
        ideal = of.of.ideal.where(of.of.ideal.is_compute & np.isin(of.of.ideal.code, shown.code))
        if not len(ideal):
            continue
        found.append((_what(code_text(int(work.code[row]), int(work.partner[row])), slips, row), ideal, shown))
    return found


def _what(text: str, slips: Slips, row: int) -> str:
    parts = {name: int(getattr(slips, name)[row]) for name in ("growth", "transfer", "gap")}
    words = {"growth": "runs longer", "transfer": "waits longer for what it needs", "gap": "starts late"}
    return f"{text} {words[max(parts, key=lambda name: parts[name])]}"


def counterparts(of: Diff, timeline: Timeline, unit: TimeUnit, *, other: str) -> list[str]:
    """For each tile of one of a diff's timelines when its counterpart ran, and its slip; empty where it has none.

    Args:
        of: The diff.
        timeline: Its ideal or its measured.
        unit: Of the times.
        other: What the other one is called; "measured" beside the ideal.
    """
    order = np.argsort(of.code)
    codes = of.code[order]
    if not codes.size:
        return [""] * len(timeline)
    at = np.minimum(np.searchsorted(codes, timeline.code), codes.size - 1)
    known = (codes[at] == timeline.code) & (timeline.replica == 0)
    row = order[at]
    start, end = (of.measured_start, of.measured_end) if other == "measured" else (of.ideal_start, of.ideal_end)
    columns: list[FloatArray] = [start[row] / unit.ns, end[row] / unit.ns, of.slip[row] / unit.ns]
    texts = [
        f"{other} {begin:,.3f} to {stop:,.3f} {unit.name}, slip {slip:+,.3f} {unit.name}"
        for begin, stop, slip in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return [text if is_known else "" for text, is_known in zip(texts, known.tolist(), strict=True)]
