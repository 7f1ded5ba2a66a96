"""The charts of a comparison: what time costs in memory, and lines over what is swept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pipetrace.compare import Comparison, Figures, Row
from pipetrace.report.bars import MARGINS
from pipetrace.report.colours import WHITE
from pipetrace.report.compare_table import has_all_to_alls, unit_of
from pipetrace.report.figure import FONT, GRID, INK, PLOT

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's, without yellow and black, which are lost on white and on black.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c94")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")
_DASHES = ("solid", "dash", "dot")


def look(index: int) -> dict[str, Any]:
    """Hue, symbol and dash of the n-th schedule: never all the same, nor told apart by hue alone."""
    return {
        "marker": {"color": _HUES[index % len(_HUES)], "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9},
        "line": {"color": _HUES[index % len(_HUES)], "dash": _DASHES[index // len(_HUES) % len(_DASHES)], "width": 2},
    }


def trade_figure(rows: Sequence[Row], comparison: Comparison) -> Figure:
    """Makespan against peak activations, a point a schedule: left and low is better.

    Those that no other beats in both are named in the chart.

    Args:
        rows: Of one setting.
        comparison: Where they are from.
    """
    import plotly.graph_objects as go

    unit = unit_of(comparison)
    figure = go.Figure()
    named = _unbeaten(rows)
    most = max((row.figures.peak_freed_at_weight_grad for row in rows if row.figures), default=0.0)
    for index, row in enumerate(rows):
        if row.figures is None:
            continue
        of = row.figures
        figure.add_trace(
            go.Scatter(
                x=[of.peak_freed_at_weight_grad],
                y=[of.makespan / unit.ns],
                mode="markers+text",
                text=[f"  {named[row]}  " if row in named else ""],
                # At the right edge there is no room beyond the point.
                textposition="middle left" if of.peak_freed_at_weight_grad > 0.7 * most else "middle right",
                name=row.candidate.label,
                hovertemplate=_hover(row.candidate.label, of, unit.text(of.makespan)),
                **look(index) | {"line": None},
            )
        )
    figure.update_traces(marker_size=13)
    figure.update_layout(
        **_layout(440),
        xaxis=_axis("peak activations on a rank, freed at W, in microbatches of a full-size stage", "tozero"),
        yaxis=_axis(f"makespan ({unit.name})"),
    )
    return figure


def sweep_figure(comparison: Comparison) -> Figure:
    """Four small charts over the swept variable with one legend: a click hides a schedule in all of them."""
    import plotly.graph_objects as go

    unit = unit_of(comparison)
    panels: list[tuple[str, Callable[[Figures], float]]] = [
        (f"makespan ({unit.name})", lambda of: of.makespan / unit.ns),
        ("global idle, % of p × makespan", lambda of: 100 * of.global_idle),
        ("peak activations, freed at W", lambda of: of.peak_freed_at_weight_grad),
        ("in-span idle, % of p × makespan", lambda of: 100 * of.in_span_idle),
    ]
    if has_all_to_alls(comparison):
        # Of two kinds of idle one will do; what is exposed is what parts are compared for.
        panels[3] = ("exposed, % of all-to-all time", lambda of: 100 * of.fraction_exposed)
    values = [setting.value or 0.0 for setting in comparison.settings]
    labels = [setting.label for setting in comparison.settings]
    figure = go.Figure()
    axes: dict[str, Any] = {}
    for panel, (title, value) in enumerate(panels):
        suffix, column, line = str(panel + 1) if panel else "", panel % 2, panel // 2
        for index, candidate in enumerate(dict.fromkeys(row.candidate for row in comparison.rows)):
            rows = [row for row in comparison.rows if row.candidate is candidate]
            y = [None if row.figures is None else value(row.figures) for row in rows]
            if all(one is None for one in y):
                continue
            figure.add_trace(
                go.Scatter(
                    x=values,
                    y=y,
                    xaxis=f"x{suffix}",
                    yaxis=f"y{suffix}",
                    mode="lines+markers",
                    name=candidate.label,
                    legendgroup=candidate.label,
                    showlegend=panel == 0,
                    customdata=labels,
                    hovertemplate=f"<b>{_text(candidate.label)}</b><br>{comparison.variable} = %{{customdata}}: "
                    "%{y:,.5~g}<extra></extra>",
                    **look(index),
                )
            )
        axes[f"xaxis{suffix}"] = {
            **_axis(comparison.variable),
            "domain": [0.54 * column, 0.46 + 0.54 * column],
            "anchor": f"y{suffix}",
            "tickvals": values,
            "ticktext": labels,
            "type": "log" if min(values) > 0 and max(values) >= 8 * min(values) else "linear",
        }
        axes[f"yaxis{suffix}"] = {
            **_axis("", "tozero"),
            "domain": [0.58 - 0.58 * line, 1 - 0.58 * line],
            "anchor": f"x{suffix}",
        }
        figure.add_annotation(
            text=title,
            xref="paper",
            yref="paper",
            x=0.54 * column,
            y=1 - 0.58 * line,
            xanchor="left",
            yanchor="bottom",
            yshift=4,
            showarrow=False,
            font={"size": 13, "weight": 600},
        )
    figure.update_layout(**_layout(720), **axes)
    figure.update_layout(margin={"l": 56, "r": 8, "t": 30, "b": 48})
    return figure


def _unbeaten(rows: Sequence[Row]) -> dict[Row, str]:
    """What is written at the points that no other beats; one name for all that coincide."""
    points: dict[tuple[float, int], list[Row]] = {}
    for row in rows:
        if row.figures is not None:
            points.setdefault((row.figures.peak_freed_at_weight_grad, row.figures.makespan), []).append(row)
    return {
        here[0]: ", ".join(_text(row.candidate.label) for row in here)
        for point, here in points.items()
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
    }


def _hover(label: str, of: Figures, makespan: str) -> str:
    return (
        f"<b>{_text(label)}</b><br>makespan {makespan}<br>global idle {100 * of.global_idle:.1f} %"
        f"<br>in-span idle {100 * of.in_span_idle:.1f} %<br>peak {of.peak_freed_at_weight_grad:g} freed at W, "
        f"{of.peak_freed_at_input_grad:g} at I<br>parameters of {of.parameters:g} stages<extra></extra>"
    )


def _text(label: str) -> str:
    # Plotly reads markup and %{…} in hover texts.
    return label.replace("&", "&amp;").replace("<", "&lt;").replace("%", "&#37;")


def _layout(height: int) -> dict[str, Any]:
    return {
        "template": "none",
        "height": height,
        "margin": {**MARGINS, "t": 12, "b": 48},
        "paper_bgcolor": WHITE,
        "plot_bgcolor": PLOT,
        "font": {"family": FONT, "size": 12, "color": INK},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {"x": 1.01, "y": 1, "xanchor": "left", "yanchor": "top"},
    }


def _axis(title: str, mode: str = "normal") -> dict[str, Any]:
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": GRID,
        "zeroline": False,
        "rangemode": mode,
        "automargin": True,
        "tickformat": ",.6~g",
    }
