"""The page of a comparison, as text and in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipetrace.candidates import candidate_of, candidates_of, of_schedule, swept
from pipetrace.compare import Comparison, Setting, compare
from pipetrace.costs import Costs
from pipetrace.metrics import MemorySizes, StageSizes
from pipetrace.parts_io import parse_parts
from pipetrace.passes import Overlap
from pipetrace.report.colours import Group, shade
from pipetrace.report.compare_charts import look, sweep_figure, trade_figure
from pipetrace.report.compare_page import write_comparison_page
from pipetrace.schedules import build
from tests import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

chromium = browser.chromium

EVIL = '</script><img src="https://evil.example/x.png" onerror="throw 1">&<b>%{y}'


@pytest.fixture(scope="module")
def one() -> Comparison:
    named = of_schedule(build("1f1b", 8, 16), EVIL)
    return compare([*candidates_of([], everything=True), named], [Setting(8, 16, Costs(), {})])


@pytest.fixture(scope="module")
def sweep() -> Comparison:
    variable, settings = swept("m=8,16,32", Setting(8, 16, Costs(), {}), "ms")
    return compare([candidate_of(name) for name in ("1f1b", "zbv", "dualpipe")], settings, variable=variable)


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return text[: text.rindex("</footer>")]


def test_no_two_schedules_look_alike() -> None:
    looks = [(look(i)["marker"]["color"], look(i)["marker"]["symbol"], look(i)["line"]["dash"]) for i in range(40)]
    assert len(set(looks)) == 40
    assert len(set(looks[:7])) == len({colour for colour, _, _ in looks[:7]})


def test_points_are_the_figures_and_the_unbeaten_are_named(one: Comparison) -> None:
    figure = trade_figure(one.rows, one)
    points = {trace.name: (trace.x[0], trace.y[0]) for trace in figure.data}
    assert points["1f1b"] == (8, 69)
    assert points["zbv"] == (8, 51.5)
    named = [trace.text[0].strip() for trace in figure.data if trace.text[0]]
    assert named == ["interleaved-zb, zbv", "v-half", "v-min"]


def test_lines_have_gaps_where_nothing_was_built(sweep: Comparison) -> None:
    figure = sweep_figure(sweep)
    assert len(figure.data) == 4 * 3
    lines = {trace.name: list(trace.y) for trace in figure.data[:3]}
    assert lines["1f1b"] == [45, 69, 117]
    assert lines["dualpipe"][0] is None
    assert [trace.showlegend for trace in figure.data] == [True] * 3 + [False] * 9


def test_orders_of_parts_show_what_they_hide(tmp_path: Path) -> None:
    orders = [candidate_of(f"dualpipev:moe-order={order}") for order in ("serial", "aligned", "dualpipe")]
    setting = Setting(2, 8, Costs(layer=parse_parts("mlp=2,a2a=1.5")), {}, Overlap(layers=2))
    of = compare(orders, [setting])
    write_comparison_page(tmp_path / "a.html", of)
    text = text_of(tmp_path / "a.html")
    assert '<div id="overlap"' in text
    exposed = [row.figures.exposed for row in of.rows if row.figures]
    assert (
        f"Least exposed all-to-all</dt><dd><strong>dualpipev dualpipe</strong><span>{min(exposed) / 1e6:g} ms" in text
    )
    # By name the point at the right edge has its name at the left.
    assert {trace.textposition for trace in trade_figure(of.rows, of).data} == {"middle left"}
    variable, settings = swept("a2a=0.5,1", setting, "ms")
    over = compare(orders, settings, variable=variable)
    panel = sweep_figure(over).data[-3:]
    assert list(panel[0].y) == [100, 100]
    shares = [
        [100 * row.figures.fraction_exposed for row in over.rows if row.figures and row.candidate is order]
        for order in orders
    ]
    assert [list(trace.y) for trace in panel] == shares
    write_comparison_page(tmp_path / "b.html", over)
    whole = compare([candidate_of("1f1b")], [Setting(2, 8, Costs(), {})])
    write_comparison_page(tmp_path / "c.html", whole)
    assert "all-to-all" not in text_of(tmp_path / "c.html")


def test_the_page_says_what_it_shows(tmp_path: Path, one: Comparison, sweep: Comparison) -> None:
    sizes = MemorySizes(StageSizes(activation_freed_at_weight=2**30), unit="bytes")
    write_comparison_page(tmp_path / "a.html", one, sizes=sizes, advice=[EVIL])
    text = text_of(tmp_path / "a.html")
    assert "<img" not in text
    assert f"{len(one.rows)} schedules of the same model" in text
    assert "<strong>interleaved-zb and zbv</strong><span>51.5 ms" in text
    for words in ("global idle = ", "in-span idle = ", "memory GiB", "p = 8, m = 16; F = 1"):
        assert words in text
    write_comparison_page(tmp_path / "b.html", sweep)
    text = text_of(tmp_path / "b.html")
    assert "dualpipe is not built: it needs" in text
    assert "m = 32" in text


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["one", "sweep"])
@pytest.mark.parametrize("width", [800, 1400])
def test_it_opens_without_network_and_errors(
    tmp_path: Path, chromium: Browser, one: Comparison, sweep: Comparison, kind: str, scheme: str, width: int
) -> None:
    path = tmp_path / "page.html"
    write_comparison_page(path, one if kind == "one" else sweep, advice=[EVIL])
    with browser.Watched(chromium, scheme=scheme, width=width) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        assert seen.page.locator("html").get_attribute("data-drawn") == ("3" if kind == "one" else "1")
        chart = "#trade-chart" if kind == "one" else "#sweep-chart"
        assert seen.page.locator(f"{chart} .points path").count() >= 9
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.page.locator(f"{chart} .points path").first.hover(force=True)
        seen.page.wait_for_selector(f"{chart} .hovertext")
        # The tool bar lies above the chart, not on its legend.
        above = seen.page.evaluate(
            "chart => [`${chart} .modebar`, `${chart} .main-svg`].map(part => document.querySelector(part)"
            ".getBoundingClientRect()).reduce((bar, drawn) => drawn.top - bar.bottom)",
            chart,
        )
        assert above >= -2
    assert seen.errors == []
    assert seen.away == []


# The colour that WebGL drew half a ms into rank 0 of each panel of a chart, in rows from the top.
DRAWN = """id => {
  const plot = document.getElementById(id), layout = plot._fullLayout, size = layout._size;
  const gl = plot.querySelector(".gl-canvas-context"), copy = document.createElement("canvas");
  copy.width = gl.width; copy.height = gl.height;
  const on = copy.getContext("2d");
  on.drawImage(gl, 0, 0);
  const axes = Object.keys(layout).filter(key => /^yaxis[0-9]*$/.test(key)).map(key => layout[key]);
  return axes.map(axis => {
    const x = size.l + layout.xaxis.d2p(0.5), y = axis._offset + axis.d2p(0);
    const [r, g, b] = on.getImageData(x * gl.width / layout.width, y * gl.height / layout.height, 1, 1).data;
    return "#" + [r, g, b].map(one => one.toString(16).padStart(2, "0")).join("");
  });
}"""


@pytest.mark.browser
def test_every_schedule_is_drawn_beside_its_name_however_many_there_are(tmp_path: Path, chromium: Browser) -> None:
    names = [f"interleaved-zb:v={chunks}" for chunks in (1, 2, 3, 4, 5, 6, 7, 8)]
    many = compare(candidates_of(names, everything=False), [Setting(16, 16, Costs(), {})])
    write_comparison_page(tmp_path / "page.html", many)
    with browser.Watched(chromium) as seen:
        seen.page.goto((tmp_path / "page.html").as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        charts = seen.page.evaluate("[...document.querySelectorAll('.plot[id^=tiles]')].map(plot => plot.id)")
        colours = [colour for chart in charts for colour in seen.page.evaluate(DRAWN, chart)]
        cut = seen.page.evaluate(
            "[...document.querySelectorAll('.gl-canvas-context')]"
            ".map(canvas => canvas.height - canvas.getContext('webgl').drawingBufferHeight)"
        )
    assert set(cut) == {0}
    # F of microbatch 0 on the first chunk, or of a later microbatch where it is short: of the panel's own schedule.
    assert len(colours) == len(names)
    for chunks, colour in enumerate(colours, 1):
        assert colour in {shade(Group.F, 0, chunks, odd).fill for odd in (False, True)}
    assert seen.errors == []
