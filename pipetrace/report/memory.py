"""Activations in flight over time, rank by rank, for both conventions of when one is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind
from pipetrace.metrics import ALL_FREED_AT, memory_over_time
from pipetrace.report.bars import MARGINS
from pipetrace.report.colours import HUES, WHITE, Group
from pipetrace.report.figure import FONT, INK, LEGEND, PLOT, time_axis
from pipetrace.report.units import unit_for
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_STEPS, _FEWEST_STEPS = 4_000, 120  # corners of a rank's curve; more are not seen and make the page heavy
_MOST_CORNERS = 12_000  # of all curves: each is an element that moves with every zoom


def frees_at_once(timeline: Timeline) -> bool:
    """Whether no backward is split into I and W, so that both conventions are the same."""
    kinds = code_kind(np.concatenate([timeline.code, timeline.partner[timeline.partner != NO_ACTION]]))
    return not np.isin(kinds, (Kind.I, Kind.W)).any()


def memory_figure(timeline: Timeline) -> Figure:
    """A curve a rank, all on one scale and on the tile chart's time axis."""
    import plotly.graph_objects as go

    unit, span = unit_for(timeline.makespan), timeline.makespan
    most_steps = min(_MOST_STEPS, max(_FEWEST_STEPS, _MOST_CORNERS // (2 * max(timeline.ranks, 1))))
    curves = {
        release: [_thin(series.time - timeline.span[0], series.value, span, most_steps) for series in held.series]
        for release, held in ((of, memory_over_time(timeline, ALL_FREED_AT[of])) for of in (Kind.I, Kind.W))
    }
    most = max((int(held.max(initial=0)) for ranks in curves.values() for _, held in ranks), default=0) or 1
    figure = go.Figure()
    height = max(14, min(44, 700 // max(timeline.ranks, 1)))
    drawn = [(Kind.W, HUES[Group.W].alternate, "freed at W"), (Kind.I, HUES[Group.I].base, "freed at I")]
    if frees_at_once(timeline):
        drawn = [(Kind.W, HUES[Group.B].base, "freed at B")]
    for release, colour, name in drawn:
        for rank, (time, held) in enumerate(curves[release]):
            floor = rank + 0.46
            x = np.concatenate([[0], time, [span]]) / unit.ns
            y = floor - 0.9 * np.concatenate([[0], held, [0]]) / most
            # The corners are written out: a fill goes to a trace of two points, which needs no shape of its own.
            figure.add_trace(
                go.Scatter(
                    x=np.concatenate([[0.0, span / unit.ns], x[::-1], [0.0]]),
                    y=np.concatenate([[floor, floor], y[::-1], [floor]]),
                    mode="lines",
                    line={"color": colour, "width": 0, "shape": "vh"},
                    fill="toself",
                    fillcolor=colour,
                    name=name,
                    legendgroup=name,
                    showlegend=rank == 0,
                    hoverinfo="skip",
                )
            )
            figure.add_trace(
                go.Scatter(
                    x=x[1:-1],
                    y=y[1:-1],
                    mode="markers",
                    marker={"size": 5, "opacity": 0, "color": colour},
                    customdata=held,
                    hovertemplate=f"rank {rank}, {name}<br>%{{customdata}} chunks from %{{x:,.3~f}} {unit.name}"
                    "<extra></extra>",
                    legendgroup=name,
                    showlegend=False,
                )
            )
    step = max(1, -(-14 // height))
    named = list(range(0, timeline.ranks, step))
    peaks = [[int(held.max(initial=0)) for _, held in curves[release]] for release, _, _ in reversed(drawn)]
    for rank in named:
        # One number where both are the same.
        text = " / ".join(dict.fromkeys(f"{of[rank]:,}" for of in peaks))
        _beside(figure, rank, text, font_size=12 if len(text) <= 8 else 8)
    _beside(figure, -0.5, "peak", yanchor="bottom", yshift=2)
    figure.update_layout(
        template="none",
        height=timeline.ranks * height + 84,
        margin={**MARGINS, "t": 36, "b": 48},
        paper_bgcolor=WHITE,
        plot_bgcolor=PLOT,
        font={"family": FONT, "size": 12, "color": INK},
        hovermode="closest",
        meta={"time": True},
        legend=LEGEND,
        xaxis=time_axis((span or 1) / unit.ns, unit),
        yaxis={
            "range": [timeline.ranks - 0.5, -0.5],
            "tickvals": named,
            "ticktext": [f"rank {rank}" for rank in named],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
    )
    return figure


def _beside(figure: Figure, y: float, text: str, **options: Any) -> None:
    """Writes to the right of the plot."""
    figure.add_annotation(
        text=text, xref="paper", x=1, xanchor="left", xshift=4, yref="y", y=y, showarrow=False, **options
    )


def _thin(time: IntArray, held: IntArray, span: int, most: int) -> tuple[IntArray, IntArray]:
    """The curve's highest point in each of `most` bins, where it has more corners than that."""
    if time.size <= most or not span:
        return time, held
    slot = np.minimum(time * most // span, most - 1)
    first = np.flatnonzero(np.diff(slot, prepend=-1))
    return time[first], np.maximum.reduceat(held, first)
