"""The tile chart: time across, ranks down, several timelines above each other on one time axis.

There are three ways to draw it, for there is none that serves both eighty tiles and a million. `mode_for` is the one
place that chooses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pipetrace.action import code_part
from pipetrace.report.bars import MARGINS, add_bars
from pipetrace.report.chunks import chunks_of, legend_of_chunks
from pipetrace.report.colours import HUES, PARTS_LEGEND, WHITE, Group
from pipetrace.report.heatmap import add_heatmap
from pipetrace.report.lines import add_lines
from pipetrace.report.marks import Marks, lanes_of, marks_of
from pipetrace.report.units import TimeUnit, unit_for
from pipetrace.timeline import UNKNOWN, Lane, Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Mode(Enum):
    """How a chart is drawn; the value says it to the reader."""

    BARS = "one bar a tile"
    LINES = "WebGL lines, one a tile; point at a tile's middle for its figures"
    HEATMAP = "busy fraction in bins of time, too many tiles to draw each"


MOST_BARS, MOST_LINES = 5_000, 150_000

FONT = "system-ui, Liberation Sans, Arial, sans-serif"
INK, PLOT, GRID, GREY = "#1b1f24", "#f3f4f6", "#d8dbe0", "#8c8c94"
LEGEND = {
    "orientation": "h",
    "itemsizing": "constant",
    "x": 0,
    "xanchor": "left",
    "yref": "container",
    "y": 1,
    "yanchor": "top",
    "tracegroupgap": 4,
}
"""Above everything: titles and the tool bar would collide with one that shares their line."""

_TOP, _BOTTOM, _BETWEEN = 58, 48, 40  # px: legend above, time axis below, title of a panel
_LINE = 18  # px: of the legend

MOST_HEIGHT, MOST_CHARTS = 4_000, 3
"""Height of a chart in px, and charts of tiles on a page. WebGL draws into a buffer of 8192 px at most on many devices
(twice the chart's px), and what is beyond lands in the wrong place without a word; a chart takes two of the 16 WebGL
contexts that a browser keeps."""


def mode_for(tiles: int) -> Mode:
    """The way to draw that many tiles."""
    if tiles <= MOST_BARS:
        return Mode.BARS
    return Mode.LINES if tiles <= MOST_LINES else Mode.HEATMAP


def row_pixels(ranks: int, most: int = 34) -> int:
    """Height of a rank's row in px: fewer where there are many ranks, so that they fit on a screen or two."""
    return max(8, min(most, 1100 // max(ranks, 1)))


_TWO_LANES = 60  # px at most of a rank's row that has all-to-alls below compute


def tile_figures(
    timelines: Sequence[tuple[str, Timeline]], *, mode: Mode | None = None, unit: TimeUnit | None = None
) -> list[Figure]:
    """As many charts as are needed for none to be too tall, three at most, all on one time axis.

    The arguments are those of `tile_figure`.
    """
    mode = mode or mode_for(sum(len(timeline) for _, timeline in timelines))
    room = MOST_HEIGHT - _TOP - 2 * _LINE - _BOTTOM
    # A third of a chart may stay empty where the next panel is taller than that.
    rows, most = sum(t.ranks for _, t in timelines), MOST_CHARTS * room * 2 // 3
    pitch = min(
        row_pixels(max(t.ranks for _, t in timelines)), max(1.0, (most - _BETWEEN * len(timelines)) / max(rows, 1))
    )
    span = max(max(timeline.makespan, _last(timeline)) for _, timeline in timelines)
    charts: list[list[tuple[str, Timeline]]] = [[]]
    used = 0.0
    for panel in timelines:
        height = panel[1].ranks * pitch + _BETWEEN
        if used + height > room and charts[-1] and len(charts) < MOST_CHARTS:
            charts.append([])
            used = 0.0
        charts[-1].append(panel)
        used += height
    return [tile_figure(panels, mode=mode, span=span, pitch=pitch, unit=unit) for panels in charts]


def tile_figure(
    timelines: Sequence[tuple[str, Timeline]],
    *,
    beside: Sequence[Sequence[str] | None] | None = None,
    mode: Mode | None = None,
    span: int = 0,
    pitch: float | None = None,
    unit: TimeUnit | None = None,
) -> Figure:
    """The tile chart of one or several timelines on a shared time axis, each from its own first action.

    Args:
        timelines: Title and timeline of each panel, from the top. The first replica is drawn.
        beside: For each timeline a further line of each tile's hover text, empty where it has none.
        mode: How to draw; chosen by the number of tiles when None.
        span: ns that the time axis reaches at least, beside another chart.
        unit: Of all times; the one that reads best when None.
        pitch: px of a rank's row; less where all of them would be taller than `MOST_HEIGHT`.
    """
    import plotly.graph_objects as go

    lanes = lanes_of([timeline for _, timeline in timelines])
    if mode is None:
        mode = mode_for(sum(len(timeline) for _, timeline in timelines))
    span = max([span, *(timeline.makespan for _, timeline in timelines)])
    unit = unit or unit_for(span)
    chunks = "" if mode is Mode.HEATMAP else legend_of_chunks([chunks_of(timeline) for _, timeline in timelines])
    parts = mode is not Mode.HEATMAP and any((code_part(timeline.code) > 0).any() for _, timeline in timelines)
    # Chunks, parts, and transfers and waits, each give the legend of a narrow page one more line.
    above = _TOP + _LINE * ((len(lanes) > 1) + bool(chunks) + parts)
    between = _BETWEEN * (len(timelines) - 1)
    if pitch is None and Lane.ALL_TO_ALL in lanes and mode is not Mode.HEATMAP:
        pitch = row_pixels(max(t.ranks for _, t in timelines), _TWO_LANES)
    heights = _heights([t.ranks for _, t in timelines], pitch, MOST_HEIGHT - above - _BOTTOM - between)
    plot = sum(heights) + between
    figure = go.Figure()
    reach = max(span, *map(_last, (t for _, t in timelines))) / unit.ns
    figure.update_layout(_layout(timelines, plot, above, reach, unit))
    top = plot
    shown: set[str] = set()
    for index, ((title, timeline), height) in enumerate(zip(timelines, heights, strict=True)):
        suffix = "" if index == 0 else str(index + 1)
        domain = [max(0.0, (top - height) / plot), top / plot]
        figure.update_layout({f"yaxis{suffix}": _rank_axis(timeline.ranks, domain, height)})
        _add_title(figure, title, domain[1])
        if mode is Mode.HEATMAP:
            add_heatmap(figure, timeline, unit, f"y{suffix}", span)
        else:
            marks = marks_of(timeline, lanes)
            draw = add_bars if mode is Mode.BARS else add_lines
            draw(
                figure,
                marks,
                unit,
                f"y{suffix}",
                _hover(marks, None if beside is None else beside[index]),
                shown,
                height,
            )
        top -= height + _BETWEEN
    if parts:
        _add_entry(figure, PARTS_LEGEND, {"symbol": "line-ns", "size": 12, "line": {"width": 3, "color": GREY}})
    if chunks:
        hue = HUES[Group.F]
        gradient = {"type": "horizontal", "color": hue.light}
        _add_entry(figure, chunks, {"symbol": "square", "size": 14, "color": hue.dark, "gradient": gradient})
    if mode is Mode.LINES:
        # Further away than half a row would be another rank's tile.
        pitch = min(height / t.ranks for height, (_, t) in zip(heights, timelines, strict=True))
        figure.update_layout(hoverdistance=max(2, int(pitch / 2) - 1))
    return figure


def _heights(ranks: Sequence[int], pitch: float | None, room: int) -> list[int]:
    """px of each panel, together no more than `room`."""
    wanted = [count * (row_pixels(count) if pitch is None else pitch) for count in ranks]
    fits = min(1.0, room / max(sum(wanted), 1))
    return [int(height * fits) for height in wanted]


def _layout(
    timelines: Sequence[tuple[str, Timeline]], plot: int, above: int, reach: float, unit: TimeUnit
) -> dict[str, object]:
    reach = reach or 1.0
    return {
        "template": "none",
        "barmode": "overlay",
        "bargap": 0,
        "height": plot + above + _BOTTOM,
        "margin": {**MARGINS, "t": above, "b": _BOTTOM},
        "paper_bgcolor": WHITE,
        "plot_bgcolor": PLOT,
        "font": {"family": FONT, "size": 12, "color": INK},
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "dragmode": "zoom",
        # The page links charts that have this.
        "meta": {"time": True},
        "legend": LEGEND,
        "xaxis": time_axis(reach, unit) | {"anchor": f"y{'' if len(timelines) < 2 else len(timelines)}"},
    }


def gaps_note(timelines: Sequence[Timeline], mode: Mode) -> str:
    """What the gaps between tiles are, for below the chart."""
    if mode is Mode.HEATMAP:
        return ""
    if any((t.lane == Lane.ALL_TO_ALL).any() for t in timelines):
        return "Below compute the all-to-all lane, underlined in violet where no compute hides it. Gaps: idle."
    if any(((t.lane == Lane.RECV) & (t.waited != UNKNOWN) & (t.waited < t.end)).any() for t in timelines):
        return "Gaps: grey where a rank waits for a receive; blank where it is idle, neither computing nor so waiting."
    return "Gaps between tiles: idle."


def time_axis(reach: float, unit: TimeUnit) -> dict[str, object]:
    """A time axis from 0 to `reach` of the unit."""
    return {
        "title": {"text": f"time ({unit.name})", "standoff": 6},
        "range": [-0.005 * reach, 1.005 * reach],
        "gridcolor": GRID,
        "zeroline": False,
        "tickformat": ",.12~g",
    }


def _add_title(figure: Figure, title: str, top: float) -> None:
    figure.add_annotation(
        text=title,
        xref="paper",
        yref="paper",
        x=0,
        y=top,
        xanchor="left",
        yanchor="bottom",
        yshift=3,
        showarrow=False,
        font={"size": 13, "weight": 600},
    )


def _add_entry(figure: Figure, text: str, marker: dict[str, object]) -> None:
    """Says in the legend what shades or heights mean."""
    import plotly.graph_objects as go

    figure.add_trace(
        go.Scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker=marker,
            name=text,
            legendrank=1000,
            hoverinfo="skip",
        )
    )


def _rank_axis(ranks: int, domain: list[float], height: int) -> dict[str, object]:
    # Every rank is named as long as the names have room.
    step = max(1, math.ceil(14 * ranks / max(height, 1)))
    named = list(range(0, ranks, step))
    return {
        "domain": domain,
        "range": [ranks - 0.5, -0.5],
        "tickvals": named,
        "ticktext": [f"rank {rank}" for rank in named],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "ticks": "",
    }


def _last(timeline: Timeline) -> int:
    return int(timeline.end.max()) - timeline.span[0] if len(timeline) else 0


def _hover(marks: Marks, beside: Sequence[str] | None) -> list[str]:
    texts = marks.texts()
    if beside is None:
        return texts
    return [
        f"{text}</b><br>{more}<b>" if (more := beside[row]) else text
        for text, row in zip(texts, marks.row.tolist(), strict=True)
    ]
