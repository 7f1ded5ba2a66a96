"""A timeline as a heatmap of how busy each rank was, for when there are more tiles than pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipetrace.report.marks import FloatArray
from pipetrace.report.units import TimeUnit
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BINS = 2_000


def busy_fraction(timeline: Timeline, span: int, bins: int = BINS, replica: int = 0) -> FloatArray:
    """The share of each bin of time that each rank's F, B, I and W cover; shape (ranks, bins).

    Args:
        timeline: Whose tiles.
        span: ns from the first action to the end of the last bin.
        bins: How many of equal width.
        replica: Which replica.
    """
    tiles = timeline.where(timeline.is_compute & (timeline.replica == replica))
    zero = timeline.span[0]
    return np.array([covered_fraction(tiles.where(tiles.rank == r), zero, span, bins) for r in range(timeline.ranks)])


def covered_fraction(tiles: Timeline, zero: int, span: float, bins: int) -> FloatArray:
    """The share of each bin that the tiles of one lane cover; shape (bins,).

    Args:
        tiles: Of one rank's lane, in order of start; what overlaps counts once.
        zero: ns at which the first bin begins.
        span: ns of all bins.
        bins: How many of equal width.
    """
    start, end = tiles.start, tiles.end
    if not start.size:
        return np.zeros(bins)
    edges = zero + np.linspace(0.0, max(span, 1), bins + 1)
    reached = np.maximum.accumulate(end)
    start = np.maximum(start, np.concatenate([start[:1], reached[:-1]]))
    end = np.maximum(end, start)
    # Covered time up to t is linear between the corners (start, before) and (end, after).
    after = np.cumsum(end - start)
    corners = np.column_stack([start, end]).ravel()
    covered = np.column_stack([after - (end - start), after]).ravel()
    fraction: FloatArray = np.diff(np.interp(edges, corners, covered)) / np.diff(edges)
    return fraction


def add_heatmap(figure: Figure, timeline: Timeline, unit: TimeUnit, yaxis: str, span: int) -> None:
    """Adds one timeline, its bins reaching to `span` ns."""
    import plotly.graph_objects as go

    width = max(span, 1) / BINS / unit.ns
    figure.add_trace(
        go.Heatmap(
            # A byte a bin: a page of fifteen schedules on 64 ranks is then some 7 MB in place of 29.
            z=np.round(100 * busy_fraction(timeline, span)).astype(np.uint8),
            x0=width / 2,
            dx=width,
            y0=0,
            dy=1,
            yaxis=yaxis,
            coloraxis="coloraxis",
            hovertemplate=f"rank %{{y}}<br>%{{x:,.3~f}} {unit.name}<br>busy %{{z}} %<extra></extra>",
        )
    )
    figure.update_layout(
        coloraxis={
            # Okabe and Ito's blue, from idle to busy: it reads by lightness alone, in light and dark.
            "colorscale": [[0, "#f5f0e1"], [0.5, "#6aa6cf"], [1, "#003f66"]],
            "cmin": 0,
            "cmax": 100,
            # Above, so that the time axis is as long as in the chart below.
            "colorbar": {
                "orientation": "h",
                "x": 1,
                "xanchor": "right",
                "yref": "container",
                "y": 1,
                "yanchor": "top",
                "ypad": 0,
                "len": 0.25,
                "tickvals": [0, 50, 100],
                "ticktext": ["idle", "half busy", "busy"],
                "thickness": 8,
                "outlinewidth": 0,
            },
        }
    )
