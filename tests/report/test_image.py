"""Charts as pictures."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipetrace import build, simulate
from pipetrace.errors import OutputError
from pipetrace.report.figure import Mode, tile_figure
from pipetrace.report.image import BROWSERS, find_browser, write_image

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@pytest.fixture(scope="module")
def figure() -> Figure:
    return tile_figure([("ideal", simulate(build("zb-h1", 4, 8)))])


@pytest.mark.browser
@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<svg"), (".PNG", b"\x89PNG")])
def test_a_picture_is_written(tmp_path: Path, figure: Figure, suffix: str, begins: bytes) -> None:
    pytest.importorskip("kaleido")
    if find_browser() is None:
        pytest.skip("no Chromium is installed")
    path = tmp_path / f"chart{suffix}"
    write_image(path, figure)
    assert path.read_bytes().startswith(begins)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_another_suffix(tmp_path: Path, figure: Figure) -> None:
    with pytest.raises(OutputError, match=r"neither \.svg nor \.png"):
        write_image(tmp_path / "chart.pdf", figure)


def test_without_kaleido(tmp_path: Path, figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(OutputError) as caught:
        write_image(tmp_path / "chart.svg", figure)
    assert "pipetrace[image]" in caught.value.hint


def test_without_a_browser(tmp_path: Path, figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido")
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OutputError) as caught:
        write_image(tmp_path / "chart.svg", figure)
    assert "Chromium" in caught.value.message
    assert "BROWSER_PATH" in caught.value.hint


def test_a_browser_that_does_not_start(tmp_path: Path, figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido")
    broken = shutil.which("false")
    if broken is None:
        pytest.skip("there is no program `false`")
    monkeypatch.setenv("BROWSER_PATH", broken)
    with pytest.raises(OutputError) as caught:
        write_image(tmp_path / "chart.svg", figure)
    assert "could not be drawn" in caught.value.message
    assert "\n" not in caught.value.message
    assert not (tmp_path / "chart.svg").exists()


def test_the_browser_is_looked_for_under_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_browser() is None
    browser = tmp_path / BROWSERS[2]
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert find_browser() == str(browser)


@pytest.mark.parametrize(("mode", "ranks", "scale"), [(Mode.LINES, 4, 2), (Mode.LINES, 480, 1), (Mode.BARS, 480, 2)])
def test_webgl_draws_a_tall_picture_at_the_scale_that_it_can(
    mode: Mode, ranks: int, scale: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("kaleido")
    tall = tile_figure([("tall", simulate(build("1f1b", ranks, 1)))], mode=mode)
    asked: dict[str, int] = {}
    monkeypatch.setattr("pipetrace.report.image.find_browser", lambda: "chromium")
    monkeypatch.setattr(type(tall), "to_image", lambda _, **options: asked.update(options) or b"a picture")
    write_image(tmp_path / "chart.png", tall)
    assert asked["scale"] == scale
