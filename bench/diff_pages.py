"""CPU time of a diff and of its page, and how long a headless Chromium takes to open and to zoom it.

    python bench/diff_pages.py [ACTIONS ...]

1F1B on 32 ranks with transfers, a rank a fifth slower than the ideal; actions are counted once, each timeline has them
and two tiles for each transfer. Times are CPU seconds of Python without imports; opening and zooming are wall time, and
are left out where no Chromium or playwright is installed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from pipetrace import Costs, StageCosts, build, simulate
from pipetrace.diff import Analysis, diff
from pipetrace.report.diff_page import write_diff_page
from pipetrace.report.verdict import verdict

RANKS = 32
_ZOOM = """async (range) => {
  const begin = performance.now();
  await Plotly.relayout("tiles", {"xaxis.range": range});
  await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  return performance.now() - begin;
}"""


def main() -> None:
    """Prints one line a size."""
    print("   actions     tiles  diff s  page s    MB  opens s  zoom s", flush=True)
    for actions in map(int, sys.argv[1:] or ("5000", "25000", "100000", "300000")):
        schedule = build("1f1b", RANKS, actions // (2 * RANKS))
        costs = Costs(p2p=50_000)
        slow = Costs(stages={2: StageCosts(1_200_000, 1_200_000, 1_200_000)}, p2p=60_000)
        ideal, measured = simulate(schedule, costs), simulate(schedule, slow)
        begin = time.process_time()
        of = Analysis(diff(ideal, measured), schedule, costs)
        verdict(of)
        _ = of.slips, of.what_if, of.references, of.waits, of.paths
        told = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "diff.html"
            write_diff_page(page, of, title="a slow rank")
            written = time.process_time()
            opens, zoom = in_browser(page, measured.makespan / 1e6)
            print(
                f"{len(schedule):>10,}{len(ideal) + len(measured):>10,}{told - begin:>8.2f}{written - told:>8.2f}"
                f"{page.stat().st_size / 1e6:>6.1f}{opens:>9}{zoom:>8}",
                flush=True,
            )


def in_browser(page: Path, span: float) -> tuple[str, str]:
    """Seconds to open the page, and the longest of three zooms; empty without a browser."""
    executable = shutil.which("chromium")
    if executable is None:
        return "", ""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "", ""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        shown = browser.new_page(viewport={"width": 1400, "height": 1000})
        begin = time.perf_counter()
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-drawn]", timeout=300_000)
        opens = time.perf_counter() - begin
        shown.locator("#tiles").scroll_into_view_if_needed()
        shown.wait_for_timeout(500)
        ranges = ([0.2 * span, 0.6 * span], [0.3 * span, 0.31 * span], [0, span])
        zoom = max(float(shown.evaluate(_ZOOM, part)) for part in ranges)
        browser.close()
    return f"{opens:.1f}", f"{zoom / 1000:.2f}"


if __name__ == "__main__":
    main()
