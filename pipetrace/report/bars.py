"""Tiles as Plotly bars, one trace a kind: labels that hide where they do not fit, and hover over the whole tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipetrace.report.colours import HUES, Group
from pipetrace.report.marks import Marks
from pipetrace.report.units import TimeUnit

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


WIDTH = 1400
"""px for which labels are chosen; the page chooses anew for its own width."""

MARGINS = {"l": 64, "r": 56}
"""px; on the right stand the peaks of what is in flight, and charts below each other have one time axis."""

SIZES = (11, 10, 9, 8)
CHARACTER = 0.6  # width of a digit against its size
LABELLED = (Group.F, Group.B, Group.I, Group.W)


def add_bars(
    figure: Figure,
    marks: Marks,
    unit: TimeUnit,
    yaxis: str,
    hover: Sequence[str],
    shown: set[str],
    height: int,  # noqa: ARG001 - lines need it, and both are called alike
) -> None:
    """Adds the marks of one timeline.

    Args:
        figure: Where to.
        marks: What.
        unit: Of the time axis.
        yaxis: Plotly's name of the panel's axis.
        hover: First line of each mark's hover text.
        shown: Groups that the legend has already; added to.
        height: Of the panel, in px.
    """
    import plotly.graph_objects as go

    texts = np.array(hover, dtype=object)
    left, right = figure.layout.xaxis.range
    size, text = fitting(marks, (WIDTH - sum(MARGINS.values())) / ((right - left) * unit.ns))
    for group in Group:
        which = np.flatnonzero(marks.group == group)
        if not which.size:
            continue
        # The legend takes the first one's colour: the kind's own.
        which = which[np.lexsort((marks.alternate[which], marks.chunk[which]))]
        mine = marks.pick(which)
        shades = mine.shades()
        inks, labelled = [each.ink for each in shades], group in LABELLED
        figure.add_trace(
            go.Bar(
                orientation="h",
                yaxis=yaxis,
                base=mine.start / unit.ns,
                x=(mine.end - mine.start) / unit.ns,
                y=mine.y,
                # Plotly's default would centre the bar in a slot that depends on its neighbours.
                width=mine.height,
                offset=-mine.height / 2,
                marker={
                    "color": [each.fill for each in shades],
                    "opacity": 0.45 if group is Group.WAIT else 1,
                    "line": {"width": 0.5 if len(marks) < 2_000 else 0, "color": "rgba(0,0,0,0.45)"},
                },
                text=text[which].tolist() if labelled else None,
                textposition="inside" if labelled else "none",
                insidetextanchor="middle",
                textangle=0,
                # Plotly would hide a label that has less than 3 px on each side, or shrink all to the smallest.
                constraintext="none",
                insidetextfont={"color": inks[0] if len(set(inks)) == 1 else inks, "size": size},
                meta={"labels": mine.labels()} if labelled else None,
                cliponaxis=True,
                **hover_of(mine, unit, texts[which].tolist()),
                **legend_of(group, shown),
            )
        )


def fitting(marks: Marks, pixels: float) -> tuple[int, npt.NDArray[np.object_]]:
    """The labels that have room, and their size in px: the largest at which nearly all fit. `page.js` does the same.

    Args:
        marks: What is labelled.
        pixels: px a ns.
    """
    labels = np.array(marks.labels(), dtype=np.str_)
    width, length = (marks.end - marks.start) * pixels, np.char.str_len(labels)
    fits = labelled = np.isin(marks.group, LABELLED)
    size = SIZES[-1]
    for size in SIZES:
        fits = labelled & (width >= size * CHARACTER * length + 1)
        if fits.sum() >= 0.95 * labelled.sum():
            break
    for group in LABELLED:
        # A few labels of a kind, where most have no room, look as if they meant something.
        mine = marks.group == group
        if 2 * fits[mine].sum() < mine.sum():
            fits &= ~mine
    return size, np.where(fits, labels, "").astype(object)


def legend_of(group: Group, shown: set[str], *, marker_only: bool = False) -> dict[str, Any]:
    """A trace's part in the legend: one entry a group, however many panels and traces have it."""
    first = group.name not in shown and not marker_only
    if first:
        shown.add(group.name)
    return {
        "name": HUES[group].legend,
        "legendgroup": group.name,
        "legendrank": 100 + int(group),
        "showlegend": first,
    }


def hover_of(marks: Marks, unit: TimeUnit, texts: list[str]) -> dict[str, Any]:
    """A trace's hover text: the action, its stage, microbatch and times."""
    figures = np.column_stack(
        [marks.stage, marks.microbatch, marks.start / unit.ns, marks.end / unit.ns, (marks.end - marks.start) / unit.ns]
    )
    microbatch = ", microbatch %{customdata[1]}" if (marks.microbatch >= 0).all() else ""
    return {
        "customdata": figures,
        "hovertext": texts,
        "hovertemplate": (
            f"<b>%{{hovertext}}</b><br>stage %{{customdata[0]}}{microbatch}"
            f"<br>start %{{customdata[2]:,.3~f}} {unit.name}<br>end %{{customdata[3]:,.3~f}} {unit.name}"
            f"<br>duration %{{customdata[4]:,.3~f}} {unit.name}<extra></extra>"
        ),
    }
