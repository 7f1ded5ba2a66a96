"""A chart as a picture file, through kaleido and a Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pipetrace.errors import OutputError
from pipetrace.report.bars import WIDTH
from pipetrace.report.figure import MOST_HEIGHT
from pipetrace.trace.files import replacing

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "brave", "msedge")
_BROWSER_PATH = "BROWSER_PATH"  # read by kaleido


def write_image(path: Path, figure: Figure) -> None:
    """Writes a chart as .svg or .png; a .png has twice the chart's px, or as many where it is tall.

    Args:
        path: Where to; its suffix says the format.
        figure: What.

    Raises:
        OutputError: The suffix is another one, kaleido or a Chromium is missing or fails, or the file cannot be
            written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise OutputError(f"{path} is neither .svg nor .png", "pictures are written as .svg or .png")
    hint = "or write .html, which needs no browser"
    try:
        import kaleido  # noqa: F401 - whether it is there; Plotly's own message has many lines
    except ImportError:
        raise OutputError(
            f"{path} needs kaleido, which is not installed", f"pip install 'pipetrace[image]', {hint}"
        ) from None
    browser = find_browser()
    if browser is None:
        raise OutputError(
            f"{path} needs Chromium or Chrome, and none was found",
            f"install one, or set {_BROWSER_PATH} to its executable, {hint}",
        )
    with _browser_path(browser):
        try:
            content: bytes = figure.to_image(format=kind, width=WIDTH, scale=_scale(figure) if kind == "png" else 1)
        except Exception as error:  # noqa: BLE001 - a browser fails in many ways, and kaleido has a class for each
            lines = str(error.args[0] if error.args else error).strip().splitlines()
            raise OutputError(
                f"{path} could not be drawn by {browser}: {(lines or [type(error).__name__])[0][:160]}",
                hint.removeprefix("or "),
            ) from None
    with replacing(path) as file:
        file.write(content)


def _scale(figure: Figure) -> int:
    """px of a picture for one of the chart; WebGL takes twice that, and misplaces what has no room in its buffer."""
    drawn_by_webgl = any(trace.type == "scattergl" for trace in figure.data)
    return 1 if drawn_by_webgl and 4 * (figure.layout.height or 0) > 2 * MOST_HEIGHT else 2


def find_browser() -> str | None:
    """The Chromium that draws: that in BROWSER_PATH, or the first on the PATH; None where there is none."""
    given = os.environ.get(_BROWSER_PATH)
    if given:
        return shutil.which(given)
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@contextmanager
def _browser_path(browser: str) -> Iterator[None]:
    """kaleido looks for fewer names than there are; told the path, it does not look."""
    before = os.environ.get(_BROWSER_PATH)
    os.environ[_BROWSER_PATH] = browser
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BROWSER_PATH]
        else:
            os.environ[_BROWSER_PATH] = before
