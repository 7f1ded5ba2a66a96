"""All-to-alls on pages: the figures that the terminal has, and who hides how much at a glance."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from pipetrace.costs import Costs
from pipetrace.diff import Analysis, diff
from pipetrace.metrics import all_to_alls
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.diff_page import write_diff_page
from pipetrace.report.overlap import InParts
from pipetrace.report.overlap_page import (
    EXPOSED,
    HIDDEN,
    compared_overlap_section,
    overlap_figure,
    overlap_section,
)
from pipetrace.report.page import write_schedule_page
from pipetrace.report.units import MILLISECONDS
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.passes.test_expand_moe import MS, layer, run_of
from tests.report.test_overlap import uneven


def rows(html: str, caption: str) -> list[list[str]]:
    """The cells of a table."""
    found = re.search(rf"<caption>{caption}.*?</table>", html, re.DOTALL)
    assert found is not None, caption
    lines = re.findall(r"<tr>(.*?)</tr>", found[0], re.DOTALL)
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)] for line in lines]


def test_the_page_says_what_the_terminal_says() -> None:
    """attn 0.5, mlp 2, all-to-alls 1, no W, worked out by hand in tests/passes/test_expand_moe.py."""
    timeline, parts = uneven()
    (html,) = overlap_section(timeline, MILLISECONDS, parts)
    text = re.sub(r"<[^>]*>", " ", html)
    for line in (
        "36 ms, of which exposed 12 ms (33.3 %)",
        "8 by order",
        "6 ms: compute 5 ms, all-to-all 4 ms (0.8 of it)",
        "0.4 of the compute",
        "57 ms (+0.0 %)",
    ):
        assert line in text
    assert rows(html, "All-to-alls of each rank")[1] == ["rank 0", "36", "24", "12"]
    kinds = {row[0]: row[1:] for row in rows(html, "What hides them")}
    assert kinds["combine I"][:2] == ["8", "7.5"]
    assert kinds["dispatch I"] == ["8", "0.0", "mlp F 100.0 %"]
    assert rows(html, "What limits the pairs")[1] == ["rank 0", "8", "0", "0", "8", "8"]
    worst = rows(html, "The pairs with most exposed")
    assert worst[0][-1] == "limit"
    assert len(worst) == 1 + 8
    assert [row[3:] for row in worst[1:]].count(["5", "4", "3.0", "1.0", "order"]) == 6
    assert sorted(float(row[6]) for row in worst[1:]) == sorted(
        pair.exposed / MS for pair in parts.pairs(all_to_alls(timeline))
    )


def test_without_all_to_alls_there_is_nothing() -> None:
    whole = simulate(run_of(2))
    assert overlap_section(whole, MILLISECONDS) == []
    assert compared_overlap_section(whole, whole, MILLISECONDS, "ideal", run_of(2)) == ""
    timeline, _ = uneven()
    (alone,) = overlap_section(timeline, MILLISECONDS)
    assert "What limits the pairs" not in alone


def test_bars_are_all_of_the_time() -> None:
    costs = layer(all_to_all=1.5)
    timeline = simulate(expand_moe(build("dualpipev", 2, 4), Overlap(), costs), costs)
    of = all_to_alls(timeline)
    hidden, exposed = overlap_figure([("", of)], MILLISECONDS).data
    assert (hidden.marker.color, exposed.marker.color) == (HIDDEN, EXPOSED)
    for rank, whole in enumerate(of.per_rank(of.duration)):
        assert round((hidden.x[rank] + exposed.x[rank]) * 1e6) == whole
    both = overlap_figure([("ideal", of), ("measured", of)], MILLISECONDS)
    assert both.layout.yaxis.ticktext == (
        "rank 0, ideal",
        "rank 0, measured",
        "rank 1, ideal",
        "rank 1, measured",
    )


def test_many_ranks_stay_on_a_screen() -> None:
    costs = layer()
    of = all_to_alls(simulate(expand_moe(build("moe-1f1b", 200, 2), Overlap(MoeOrder.ALIGNED), costs), costs))
    figure = overlap_figure([("", of)], MILLISECONDS)
    assert figure.layout.height < 1_100
    assert len(figure.layout.yaxis.ticktext) <= 41


def test_both_pages_have_it(tmp_path: Path) -> None:
    whole, overlap, costs = build("dualpipev", 2, 4), Overlap(MoeOrder.ALIGNED), layer()
    schedule = expand_moe(whole, overlap, costs)
    ideal, measured = simulate(schedule, costs), simulate(schedule, layer(all_to_all=2))
    page = tmp_path / "x.html"
    write_schedule_page(page, schedule, ideal, costs, InParts(overlap, costs, whole))
    html = page.read_text(encoding="utf-8")
    assert '<div id="overlap"' in html
    assert "Exposed all-to-all" in html
    write_diff_page(page, Analysis(diff(ideal, measured), schedule, costs), title="a run")
    html = page.read_text(encoding="utf-8")
    head = rows(html, "All-to-alls of each rank")[0]
    assert head[1:3] == ["all-to-all, ideal (ms)", "all-to-all, measured (ms)"]
    assert rows(html, "What hides them, measured")
    # Twice as long all-to-alls: more than the compute lane has to do.
    limited = {name: rows(html, f"What limits the pairs, {name}")[1] for name in ("ideal", "measured")}
    assert limited["ideal"][2:5] == [limited["ideal"][1], "0", "0"]
    assert limited["measured"][2:5] == ["0", limited["measured"][1], "0"]
    assert rows(html, "The pairs with most exposed, measured")
    write_schedule_page(page, whole, simulate(whole), Costs())
    assert "Exposed all-to-all" not in page.read_text(encoding="utf-8")
