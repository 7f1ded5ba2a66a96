"""Tiles as WebGL lines: up to some 150,000, where bars take seconds to move.

A line has no inside to point at, so that invisible markers in the tiles' middles carry the hover texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.report.bars import hover_of, legend_of
from pipetrace.report.colours import HUES, Group, shade
from pipetrace.report.marks import Marks
from pipetrace.report.units import TimeUnit

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def add_lines(
    figure: Figure, marks: Marks, unit: TimeUnit, yaxis: str, hover: Sequence[str], shown: set[str], height: int
) -> None:
    """Adds the marks of one timeline; the arguments are those of `add_bars`."""
    import plotly.graph_objects as go

    texts = np.array(hover, dtype=object)
    axis = figure.layout[f"yaxis{yaxis[1:]}"]
    pixels = height / abs(axis.range[0] - axis.range[1])  # of one rank
    looks = np.column_stack([marks.group, marks.chunk, marks.alternate])
    for group in Group:
        for tall in np.unique(marks.height[marks.group == group]).tolist():
            here = (marks.group == group) & (marks.height == tall)
            for look in np.unique(looks[here], axis=0):
                mine = marks.pick(here & (looks == look).all(axis=1))
                # Three points a tile, the third a gap.
                x, y = np.full((len(mine), 3), np.nan), np.full((len(mine), 3), np.nan)
                x[:, 0], x[:, 1] = mine.start / unit.ns, mine.end / unit.ns
                y[:, :2] = mine.y[:, None]
                _, chunk, odd = look.tolist()
                figure.add_trace(
                    go.Scattergl(
                        mode="lines",
                        yaxis=yaxis,
                        x=x.ravel(),
                        y=y.ravel(),
                        line={
                            "color": shade(group, chunk, marks.chunks, bool(odd)).fill,
                            "width": max(1.0, tall * pixels),
                        },
                        opacity=0.45 if group is Group.WAIT else 1,
                        hoverinfo="skip",
                        **legend_of(group, shown),
                    )
                )
        which = np.flatnonzero(marks.group == group)
        if which.size:
            mine = marks.pick(which)
            figure.add_trace(
                go.Scattergl(
                    mode="markers",
                    yaxis=yaxis,
                    x=(mine.start + mine.end) / (2 * unit.ns),
                    y=mine.y,
                    marker={"color": HUES[group].base, "size": 4, "opacity": 0},
                    **hover_of(mine, unit, texts[which].tolist()),
                    **legend_of(group, shown, marker_only=True),
                )
            )
