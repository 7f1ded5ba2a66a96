"""Marks, and the figure in its three modes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipetrace import Action, Costs, Kind, Pair, build, simulate
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.bars import fitting
from pipetrace.report.colours import HUES, PARTS_LEGEND, Group, shade
from pipetrace.report.figure import (
    MOST_BARS,
    MOST_CHARTS,
    MOST_HEIGHT,
    MOST_LINES,
    Mode,
    mode_for,
    row_pixels,
    tile_figure,
    tile_figures,
)
from pipetrace.report.heatmap import busy_fraction
from pipetrace.report.marks import lane_rows, lanes_of, marks_of
from pipetrace.timeline import Lane, Tile, Timeline

MS = 1_000_000


@pytest.fixture(scope="module")
def ideal() -> Timeline:
    return simulate(build("zb-h1", 4, 8))


@pytest.fixture(scope="module")
def with_transfers() -> Timeline:
    return simulate(build("zb-h1", 4, 8), Costs(p2p=200_000))


@pytest.fixture(scope="module")
def paired() -> Timeline:
    pair = Pair(Action(Kind.F, 0, 5), Action(Kind.B, 1, 2))
    return Timeline.from_tiles(
        1, [Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 5, 10), Tile(pair, 0, Lane.COMPUTE, 10, 30)]
    )


def bars(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


@pytest.mark.parametrize(
    ("tiles", "mode"),
    [
        (0, Mode.BARS),
        (MOST_BARS, Mode.BARS),
        (MOST_BARS + 1, Mode.LINES),
        (MOST_LINES, Mode.LINES),
        (10**6, Mode.HEATMAP),
    ],
)
def test_the_mode_follows_the_number_of_tiles(tiles: int, mode: Mode) -> None:
    assert mode_for(tiles) is mode


def test_a_bar_stands_for_each_tile_in_one_trace_a_kind(ideal: Timeline) -> None:
    traces = bars(tile_figure([("ideal", ideal)]))
    assert sorted(traces) == sorted(HUES[group].legend for group in (Group.F, Group.I, Group.W))
    assert {name: len(trace.x) for name, trace in traces.items()} == dict.fromkeys(traces, 32)
    forward = traces[HUES[Group.F].legend]
    assert (forward.base[0], forward.x[0], forward.y[0], forward.text[0]) == (0.0, 1.0, 0.0, "0")
    assert forward.hovertext[0] == "0F0"
    assert set(forward.marker.color) == {HUES[Group.F].base, HUES[Group.F].alternate}


@pytest.mark.parametrize("mode", [Mode.BARS, Mode.LINES], ids=lambda mode: mode.name)
def test_chunks_have_shades_and_the_legend_says_so(mode: Mode) -> None:
    figure = tile_figure([("zbv", simulate(build("zbv", 4, 8)))], mode=mode)
    if mode is Mode.BARS:
        forward = bars(figure)[HUES[Group.F].legend]
        fills = {text: forward.marker.color[at] for at, text in enumerate(forward.hovertext)}
        assert forward.marker.color[0] == HUES[Group.F].dark  # which the legend takes
        assert len(set(forward.insidetextfont.color)) == 2
    else:
        lines = [trace for trace in figure.data if trace.mode == "lines" and trace.legendgroup == "F"]
        # The first on each rank: 0F0 and 7F0 stand 0 and 7 ms from the start.
        fills = {f"{trace.y[0]:.0f} {trace.x[0]:g}": trace.line.color for trace in lines}
        fills = {"0F0": fills["0 0"], "7F0": fills["0 7"]}
        assert next(trace for trace in lines if trace.showlegend).line.color == HUES[Group.F].dark
    assert fills["0F0"] == HUES[Group.F].dark
    assert fills["7F0"] == shade(Group.F, 1, 2, False).fill
    assert figure.data[-1].name == "dark to light: chunk 0 (stages 0–3), chunk 1 (stages 4–7)"


def test_without_chunks_the_legend_says_nothing_of_them(ideal: Timeline) -> None:
    assert not [trace.name for trace in tile_figure([("ideal", ideal)]).data if "chunk" in trace.name]


def test_rank_0_is_on_top(ideal: Timeline) -> None:
    low, high = tile_figure([("ideal", ideal)]).layout.yaxis.range
    assert low > high


def test_panels_share_one_time_axis_and_zero(ideal: Timeline) -> None:
    figure = tile_figure([("ideal", ideal), ("measured", ideal.shifted(7 * MS))])
    first, second = (next(t for t in figure.data if t.yaxis == axis and t.legendgroup == "F") for axis in ("y", "y2"))
    assert first.base.min() == second.base.min() == 0
    assert {trace.xaxis for trace in figure.data} == {None}
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert sum(trace.showlegend for trace in figure.data) == 3
    assert [annotation.text for annotation in figure.layout.annotations] == ["ideal", "measured"]


@pytest.mark.parametrize(
    ("ranks", "panels"), [(4, 3), (8, 15), (16, 15), (64, 15), (8, 40), (300, 2), (1024, 1), (5000, 1)]
)
def test_no_chart_is_taller_than_webgl_can_draw(ranks: int, panels: int) -> None:
    tile = Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 0, MS)
    given = [(f"{index}", Timeline.from_tiles(ranks, [tile])) for index in range(panels)]
    charts = tile_figures(given, mode=Mode.LINES)
    assert len(charts) <= MOST_CHARTS
    assert max(chart.layout.height for chart in charts) <= MOST_HEIGHT
    assert [annotation.text for chart in charts for annotation in chart.layout.annotations] == [t for t, _ in given]
    assert tile_figure(given, mode=Mode.LINES).layout.height <= MOST_HEIGHT


def test_charts_below_each_other_have_one_time_axis(ideal: Timeline) -> None:
    longest = simulate(build("gpipe", 4, 12))
    charts = tile_figures([(f"{index}", ideal) for index in range(40)] + [("longest", longest)])
    assert len({tuple(chart.layout.xaxis.range) for chart in charts}) == 1
    assert len(charts) == 2


def test_counterparts_are_told_where_they_are_known(ideal: Timeline) -> None:
    beside = ["measured 1 to 2 ms", *[""] * (len(ideal) - 1)]
    forward = bars(tile_figure([("ideal", ideal)], beside=[beside]))[HUES[Group.F].legend]
    assert "measured 1 to 2 ms" in forward.hovertext[0]
    assert "measured" not in forward.hovertext[1]


def test_a_pair_is_two_halves_of_one_tile(paired: Timeline) -> None:
    marks = marks_of(paired, lanes_of([paired]))
    assert len(marks) == 3
    both = marks.pick(marks.partner != 0)
    assert both.group.tolist() == [Group.F, Group.B]
    assert both.labels() == ["5", "2"]
    assert set(both.texts()) == {"(0F5;1B2)OVERLAP_F_B"}
    assert both.start.tolist() == [5, 5]
    assert both.y[0] + both.height[0] / 2 == pytest.approx(both.y[1] - both.height[1] / 2)
    whole = marks.pick(marks.partner == 0)
    assert both.height.sum() == pytest.approx(whole.height[0])


def test_transfers_and_waits_have_their_place(with_transfers: Timeline) -> None:
    lanes = lanes_of([with_transfers])
    assert lanes == [Lane.COMPUTE, Lane.SEND, Lane.RECV]
    rows = lane_rows(lanes)
    edges = [(middle - height / 2, middle + height / 2) for middle, height in rows.values()]
    assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(edges))
    assert edges[0][0] > -0.5
    assert edges[-1][1] < 0.5
    marks = marks_of(with_transfers, lanes)
    waits = marks.pick(marks.group == Group.WAIT)
    assert len(waits)
    assert (waits.end > waits.start).all()
    assert waits.texts()[0].startswith("waits for ")


def test_labels_stand_where_they_have_room(ideal: Timeline) -> None:
    marks = marks_of(ideal, lanes_of([ideal]))
    size, text = fitting(marks, 40 / MS)
    assert size == 11
    assert "" not in text.tolist()
    assert fitting(marks, 7 / MS)[0] < 11
    assert set(fitting(marks, 3 / MS)[1].tolist()) == {""}


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", ["ideal", "with_transfers", "paired", "empty"])
def test_every_mode_draws_everything(mode: Mode, name: str, request: pytest.FixtureRequest) -> None:
    timeline = Timeline.from_tiles(3, []) if name == "empty" else request.getfixturevalue(name)
    figure = tile_figure([("one", timeline), ("other", timeline)], mode=mode)
    assert figure.to_json()
    assert figure.layout.height >= 2 * timeline.ranks * row_pixels(timeline.ranks)


def test_lines_have_a_gap_after_each_tile_and_a_marker_in_its_middle(ideal: Timeline) -> None:
    figure = tile_figure([("ideal", ideal)], mode=Mode.LINES)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert sum(len(trace.x) for trace in lines) == 3 * len(ideal)
    assert all(np.isnan(trace.x[2::3]).all() for trace in lines)
    markers = [trace for trace in figure.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in markers) == len(ideal)
    assert markers[0].x[0] == 0.5
    assert figure.layout.hoverdistance < row_pixels(4) / 2


def test_busy_fractions_add_up_to_busy_time(ideal: Timeline) -> None:
    fraction = busy_fraction(ideal, ideal.makespan, bins=54)
    assert fraction.sum(axis=1) * ideal.makespan / 54 == pytest.approx([24 * MS] * 4)
    assert fraction.min() == 0
    assert fraction.max() == pytest.approx(1)


def test_what_overlaps_counts_once() -> None:
    tiles = [
        Tile(Action(Kind.F, 0, m), 0, Lane.COMPUTE, start, end) for m, start, end in ((0, 0, 10), (1, 2, 6), (2, 8, 20))
    ]
    assert busy_fraction(Timeline.from_tiles(1, tiles), 40, bins=4).tolist() == [[1, 1, 0, 0]]


def test_parts_of_a_layer_are_told_apart() -> None:
    """By height, by shade, and by a letter where there is room."""
    schedule = expand_moe(build("1f1b", 1, 2), Overlap(MoeOrder.SERIAL))
    timeline = simulate(schedule)
    marks = marks_of(timeline, lanes_of([timeline]))
    compute = marks.pick((marks.group != Group.EXPOSED) & (marks.group == Group.F) & (marks.microbatch == 1))
    look = dict(zip(compute.labels(), zip(compute.height.tolist(), compute.shades(), strict=True), strict=True))
    assert set(look) == {"a1", "d1", "m1", "c1"}
    for low, tall in (("a1", "m1"), ("d1", "c1")):
        assert look[low][0] < 0.7 * look[tall][0]
        assert look[low][1].fill != look[tall][1].fill
    figure = tile_figure([("", timeline)])
    legend = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert PARTS_LEGEND in legend
    assert PARTS_LEGEND not in [trace.name for trace in tile_figure([("", simulate(build("1f1b", 1, 2)))]).data]
