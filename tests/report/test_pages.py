"""The pages, in a browser, as people open them: from a file, without a network."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipetrace import Action, Costs, Kind, StageCosts, build, simulate
from pipetrace.diff import Analysis, Diff, diff
from pipetrace.errors import OutputError
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.diff_page import write_diff_page
from pipetrace.report.figure import Mode
from pipetrace.report.overlap import InParts
from pipetrace.report.page import write_schedule_page
from pipetrace.schedule import Schedule
from tests import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

chromium = browser.chromium

EVIL = '</script><img src="https://evil.example/x.png" onerror="throw 1">&<b>'


@pytest.fixture(scope="module")
def slow_stage() -> Diff:
    schedule = build("zb-h1", 4, 8)
    costs = Costs(stages={2: StageCosts(1_510_000, 1_480_123, 1_500_001)}, p2p=120_000)
    return diff(simulate(schedule), simulate(schedule, costs))


def schedule_page(path: Path, name: str = "zb-h1", ranks: int = 4, microbatches: int = 8) -> Path:
    schedule = build(name, ranks, microbatches)
    write_schedule_page(path, schedule, simulate(schedule), Costs())
    return path


def moe_page(path: Path) -> Path:
    whole, overlap = build("dualpipev", 2, 4), Overlap(MoeOrder.DUALPIPE)
    schedule = expand_moe(whole, overlap)
    write_schedule_page(path, schedule, simulate(schedule), Costs(), InParts(overlap, Costs(), whole))
    return path


def diff_page(path: Path, of: Diff, **options: Any) -> Path:
    schedule = options.pop("schedule", None) or build("zb-h1", 4, 8)
    given: dict[str, Any] = {"title": "a run"}
    write_diff_page(path, Analysis(of, schedule, Costs()), **given | options)
    return path


def without_plotly(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return text[: text.rindex("</footer>")]


def background(page: Page, selector: str) -> str:
    return str(page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).backgroundColor"))


def test_a_page_names_no_other_place(tmp_path: Path, slow_stage: Diff) -> None:
    for path in (schedule_page(tmp_path / "a.html"), diff_page(tmp_path / "b.html", slow_stage)):
        text = without_plotly(path)
        assert not re.search(r"(src|href)=\"(?!data:|#)", text)
        assert "default-src 'none'" in text
        assert text.startswith("<!doctype html>")
        assert '<html lang="en">' in text


def test_figures_are_those_of_the_metrics(tmp_path: Path) -> None:
    text = without_plotly(schedule_page(tmp_path / "a.html"))
    for figure in ("27 ms", "11.1 %", "12 ms", "6 ms", "4 chunks"):
        assert f"<strong>{figure}</strong>" in text
    assert "global idle = makespan - busy" in text
    assert Mode.BARS.value in text


def test_what_a_user_named_is_text(tmp_path: Path, slow_stage: Diff) -> None:
    path = diff_page(tmp_path / "a.html", slow_stage, title=EVIL, facts=[(EVIL, EVIL)], missing=[EVIL], notes=[EVIL])
    assert "<img" not in without_plotly(path)


def test_mismatches_come_before_the_chart(tmp_path: Path) -> None:
    schedule = build("gpipe", 2, 4)
    ideal = simulate(schedule)
    measured = ideal.where(ideal.code != Action(Kind.F, 1, 3).code)
    text = without_plotly(diff_page(tmp_path / "a.html", diff(ideal, measured), schedule=schedule))
    assert "Missing: 1" in text
    assert text.index("Missing: 1") < text.index('data-figure="tiles"')
    assert "Extra" not in text
    same = without_plotly(diff_page(tmp_path / "b.html", diff(ideal, ideal), schedule=None))
    assert "Actions that do not match" not in same


def test_steps_and_facts_are_told(tmp_path: Path, slow_stage: Diff) -> None:
    path = diff_page(
        tmp_path / "a.html",
        slow_stage,
        facts=[("CUDA_DEVICE_MAX_CONNECTIONS", "1")],
        step_makespans=[40_000_000, 38_891_000],
        chosen_step=1,
    )
    text = without_plotly(path)
    assert "40.000, 38.891 (shown) ms" in text
    assert "<dt>CUDA_DEVICE_MAX_CONNECTIONS</dt><dd>1</dd>" in text


def test_a_page_that_cannot_be_written(tmp_path: Path, slow_stage: Diff) -> None:
    path = tmp_path / "missing" / "a.html"
    with pytest.raises(OutputError):
        schedule_page(path)
    with pytest.raises(OutputError):
        diff_page(path, slow_stage)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["schedule", "moe", "diff"])
def test_it_opens_from_a_file_without_network_and_errors(
    tmp_path: Path, chromium: Browser, slow_stage: Diff, kind: str, scheme: str
) -> None:
    path = tmp_path / "page.html"
    if kind == "schedule":
        schedule_page(path)
    elif kind == "moe":
        moe_page(path)
    else:
        diff_page(path, slow_stage, title=EVIL, facts=[(EVIL, EVIL)], missing=[EVIL], notes=[EVIL])
    with browser.Watched(chromium, scheme=scheme) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        tiles = seen.page.locator("#tiles .bars path").count()
        dark_page = background(seen.page, "body")
        ink = seen.page.evaluate("document.getElementById('tiles')._fullLayout.font.color")
        labels = seen.page.locator("#tiles .bartext").all_text_contents()
        shot = seen.page.screenshot(full_page=True)
        overflow = seen.page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert seen.errors == []
    assert seen.away == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert tiles >= 96 * (2 if kind == "diff" else 1)
    assert {"m0", "c3"} <= set(labels) if kind == "moe" else {"0", "7"} <= set(labels)
    assert dark_page == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
    assert ink == ("#1b1f24" if scheme == "light" else "#e6e9ed")
    assert len(shot) > 10_000
    assert not overflow


@pytest.mark.browser
@pytest.mark.parametrize("width", [800, 1600])
def test_nothing_is_wider_than_the_page(tmp_path: Path, chromium: Browser, slow_stage: Diff, width: int) -> None:
    path = diff_page(tmp_path / "page.html", slow_stage)
    with browser.Watched(chromium, width=width) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [box for item in seen.page.locator("#tiles .legendtext").all() if (box := item.bounding_box())]
        title = seen.page.locator("#tiles .annotation-text").first.bounding_box()
    assert title is not None
    assert all(box["y"] + box["height"] <= title["y"] + 1 for box in boxes)


@pytest.mark.browser
def test_the_theme_follows_while_the_page_is_open(tmp_path: Path, chromium: Browser) -> None:
    path = schedule_page(tmp_path / "page.html")
    with browser.Watched(chromium) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        seen.page.emulate_media(color_scheme="dark")
        seen.page.wait_for_function("document.getElementById('tiles')._fullLayout.font.color === '#e6e9ed'")
        seen.page.wait_for_function("document.getElementById('in-flight')._fullLayout.paper_bgcolor === '#14171b'")
    assert seen.errors == []


@pytest.mark.browser
def test_hover_tells_the_action_and_zoom_is_shared(tmp_path: Path, chromium: Browser, slow_stage: Diff) -> None:
    path = diff_page(tmp_path / "diff.html", slow_stage)
    with browser.Watched(chromium) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        seen.page.locator("#tiles .bars path").first.hover(force=True)
        seen.page.wait_for_selector("#tiles .hovertext")
        text = seen.page.locator("#tiles .hovertext").first.text_content() or ""
        for part in ("0F0", "slip 0.000 ms", "stage 0, microbatch 0", "duration 1 ms"):
            assert part in text.replace("+", "")
        schedule_page(path)
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        seen.page.evaluate("Plotly.relayout('tiles', {'xaxis.range': [2, 5]})")
        seen.page.locator("#in-flight").scroll_into_view_if_needed()
        seen.page.wait_for_function("document.getElementById('in-flight').layout.xaxis.range[0] === 2")
        size = seen.page.evaluate("document.getElementById('tiles')._fullData[0].insidetextfont.size")
        assert size == 11
        labels = seen.page.locator("#tiles .bartext").all_text_contents()
        assert 4 < len(labels) <= 4 * 3
    assert seen.errors == []


@pytest.fixture
def table(tmp_path: Path, chromium: Browser) -> Any:
    def open_(of: Diff) -> browser.Watched:
        seen = browser.Watched(chromium)
        opened.append(seen)
        seen.page.goto(diff_page(tmp_path / "page.html", of).as_uri())
        seen.page.wait_for_selector(".actions tbody tr")
        return seen

    opened: list[browser.Watched] = []
    yield open_
    for seen in opened:
        assert seen.errors == []
        seen.context.close()


def column(page: Page, index: int) -> list[str]:
    return page.locator(f".actions tbody tr > :nth-child({index})").all_inner_texts()


@pytest.mark.browser
def test_the_table_of_actions_sorts_and_filters(table: Callable[[Diff], browser.Watched], slow_stage: Diff) -> None:
    page = table(slow_stage).page
    head = page.locator(".actions thead th")
    page.locator("[data-more]").click()
    slips = [float(text.replace(",", "")) for text in column(page, 5)]
    assert slips == sorted(slips, reverse=True)
    assert head.nth(4).get_attribute("aria-sort") == "descending"
    head.nth(4).locator("button").click()
    assert [float(text) for text in column(page, 5)] == sorted(slips)[:25]
    assert head.nth(4).get_attribute("aria-sort") == "ascending"
    head.nth(0).locator("button").click()
    assert column(page, 1)[:3] == ["0F0", "0F1", "0F2"]
    assert head.nth(4).get_attribute("aria-sort") is None
    head.nth(2).locator("button").focus()
    page.keyboard.press("Enter")
    starts = [float(text) for text in column(page, 3)]
    assert starts == sorted(starts)
    page.select_option("[data-filter=rank]", "2")
    assert set(column(page, 2)) == {"2"}
    page.select_option("[data-filter=kind]", "W")
    assert column(page, 1) == [f"2W{microbatch}" for microbatch in range(8)]
    page.fill("[data-filter=text]", "W7")
    assert column(page, 1) == ["2W7"]
    assert "1 of 1 actions" in page.locator("[data-count]").inner_text()


@pytest.mark.browser
def test_a_long_table_shows_its_worst_first_and_more_when_asked(table: Callable[[Diff], browser.Watched]) -> None:
    schedule = build("1f1b", 4, 200)
    page = table(diff(simulate(schedule), simulate(schedule, Costs(p2p=100_000)))).page
    more, count = page.locator("[data-more]"), page.locator("[data-count]")
    for shown, offered in ((25, "200"), (225, "1,000"), (1225, "375")):
        assert page.locator(".actions tbody tr").count() == shown
        assert count.inner_text() == f"{shown:,} of 1,600 actions shown"
        assert more.inner_text() == f"Show {offered} more"
        more.click()
    assert page.locator(".actions tbody tr").count() == 1600
    assert not more.is_visible()


@pytest.mark.browser
def test_all_rows_that_are_said_to_be_shown_are_on_the_page(
    table: Callable[[Diff], browser.Watched], slow_stage: Diff
) -> None:
    page = table(slow_stage).page
    page.locator("[data-more]").click()
    assert page.locator("[data-count]").inner_text() == "96 of 96 actions shown"
    hidden = "(box => box.scrollHeight - box.clientHeight)(document.querySelector('.actions .scroll'))"
    assert page.evaluate(hidden) == 0


@pytest.mark.browser
@pytest.mark.parametrize("ranks", [4, 16])
def test_bars_stand_beside_their_numbers(tmp_path: Path, chromium: Browser, ranks: int) -> None:
    path = schedule_page(tmp_path / "page.html", ranks=ranks)
    with browser.Watched(chromium, width=800) as seen:
        seen.page.goto(path.as_uri())
        room = seen.page.evaluate(
            "[...document.querySelectorAll('td.bar')].map(cell => {"
            " const bar = getComputedStyle(cell, '::before'), text = document.createRange();"
            " text.selectNodeContents(cell);"
            " return text.getBoundingClientRect().x - cell.getBoundingClientRect().x"
            " - parseFloat(bar.left) - parseFloat(bar.width); })"
        )
    assert len(room) == 5 * ranks
    assert min(room) >= 4


def test_where_no_backward_is_split_one_convention_is_told(tmp_path: Path) -> None:
    text = without_plotly(schedule_page(tmp_path / "a.html", "1f1b"))
    assert "freed at B (chunks)" in text
    assert "no backward is split" in text
    assert "freed at I" not in text
    assert "freed at W" not in text
    split = without_plotly(schedule_page(tmp_path / "b.html"))
    assert "freed at I (chunks)" in split
    assert "freed at W (chunks)" in split


def test_gaps_are_told(tmp_path: Path, slow_stage: Diff) -> None:
    assert "Gaps between tiles: idle." in without_plotly(schedule_page(tmp_path / "a.html"))
    text = without_plotly(diff_page(tmp_path / "b.html", slow_stage))
    assert "grey where a rank waits for a receive; blank where it is idle" in text


def test_cards_have_few_digits(tmp_path: Path, slow_stage: Diff) -> None:
    text = without_plotly(diff_page(tmp_path / "a.html", slow_stage))
    figures = re.findall(r"<strong>([^<]+)</strong>", text)
    assert figures[:3] == ["27 ms", "38.9 ms", "11.9 ms"]
    assert re.fullmatch(r"11\.1 → \d\d\.\d %", figures[3])
    assert re.fullmatch(r"6 → \d\d\.\d ms", figures[4])
    assert "measured, 38.891 ms" in text


@pytest.mark.browser
@pytest.mark.parametrize("mode", [Mode.LINES, Mode.HEATMAP], ids=lambda mode: mode.name)
def test_the_modes_for_many_tiles_are_drawn_and_said(
    tmp_path: Path, chromium: Browser, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("figure", "page"):
        monkeypatch.setattr(f"pipetrace.report.{module}.mode_for", lambda _: mode)
    path = schedule_page(tmp_path / "page.html")
    assert escape(mode.value) in without_plotly(path)
    with browser.Watched(chromium) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        if mode is Mode.LINES:
            # The middle of the first tile, half a ms and half a row in.
            at = seen.page.evaluate(
                "(() => { const p = document.getElementById('tiles'), l = p._fullLayout, b = p.getBoundingClientRect();"
                " return [b.x + l._size.l + l.xaxis.d2p(0.5), b.y + l._size.t + l.yaxis.d2p(0)]; })()"
            )
            seen.page.mouse.move(at[0] + 1, at[1] + 1)
            seen.page.mouse.move(*at)
            seen.page.wait_for_selector("#tiles .hovertext")
            text = seen.page.locator("#tiles .hovertext").first.text_content() or ""
            assert "0F0" in text
            assert "duration 1 ms" in text
        else:
            assert seen.page.locator("#tiles .heatmaplayer image").count() == 1
    assert seen.errors == []
    assert seen.away == []


def test_a_diff_opens_with_its_verdict_and_its_waterfall(tmp_path: Path, slow_stage: Diff) -> None:
    text = without_plotly(diff_page(tmp_path / "a.html", slow_stage))
    assert "Rank 2&#x27;s compute takes 1.50 times as long as the costs say" in text
    order = ["Rank 2&#x27;s compute", 'data-figure="waterfall"', 'data-figure="tiles"', 'data-figure="drift"']
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    for name in ("rank 2 healthy", "Whom ranks waited for", "imbalance: stages that differ", "against mean"):
        assert name in text
    assert "worst-0" not in text


def large(ranks: int, microbatches: int) -> tuple[Schedule, Diff]:
    """One rank slower by a fifth."""
    schedule = build("1f1b", ranks, microbatches)
    slow = Costs(stages={2: StageCosts(1_200_000, 1_200_000, 1_200_000)})
    return schedule, diff(simulate(schedule), simulate(schedule, slow))


def test_many_tiles_are_a_heatmap_with_the_worst_places_close_up(tmp_path: Path) -> None:
    schedule, of = large(8, 1_000)
    path = diff_page(tmp_path / "a.html", of, schedule=schedule)
    text = without_plotly(path)
    assert Mode.HEATMAP.value in text
    assert 'data-figure="worst-0"' in text
    assert "runs longer" in text


@pytest.mark.browser
def test_a_page_of_a_hundred_thousand_tiles_can_be_used(tmp_path: Path, chromium: Browser) -> None:
    """How long it takes is for the bench: here only what a busy machine takes in any case."""
    schedule, of = large(32, 800)
    assert len(of.ideal) + len(of.measured) > 100_000
    path = diff_page(tmp_path / "a.html", of, schedule=schedule)
    assert path.stat().st_size < 30_000_000
    with browser.Watched(chromium) as seen:
        seen.page.goto(path.as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        seen.page.evaluate("Plotly.relayout('tiles', {'xaxis.range': [100, 200]})")
        # What is in sight follows at once, what is not when it is scrolled to.
        seen.page.locator("#in-flight-measured").scroll_into_view_if_needed()
        seen.page.wait_for_function("document.getElementById('in-flight-measured').layout.xaxis.range[0] === 100")
        assert seen.errors == []


@pytest.mark.browser
def test_the_counterpart_is_a_hover_away_and_the_drift_zooms_along(
    tmp_path: Path, chromium: Browser, slow_stage: Diff
) -> None:
    with browser.Watched(chromium) as seen:
        seen.page.goto(diff_page(tmp_path / "a.html", slow_stage).as_uri())
        seen.page.wait_for_selector("html[data-drawn]")
        seen.page.locator("#tiles .bars path").first.hover(force=True)
        seen.page.wait_for_selector("#tiles .hovertext")
        assert "measured 0.000 to 1.000 ms" in (seen.page.locator("#tiles .hovertext").first.text_content() or "")
        seen.page.evaluate("Plotly.relayout('tiles', {'xaxis.range': [2, 5]})")
        seen.page.locator("#drift").scroll_into_view_if_needed()
        seen.page.wait_for_function("document.getElementById('drift').layout.xaxis.range[0] === 2")
    assert seen.errors == []
