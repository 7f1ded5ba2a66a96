"""Progress of reading: shown where it takes long and somebody looks."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pipetrace.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("silent", "terminal", "shown"), [(0.0, True, True), (60.0, True, False), (0.0, False, False)])
def test_a_bar_where_reading_takes_long(
    silent: float, terminal: bool, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank0.json").write_bytes(b"x" * 4000)
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "SILENT_S", silent)
    monkeypatch.setenv("TERM", "xterm")
    with progress.reading_progress([tmp_path, tmp_path / "absent"]) as read:
        for _ in range(4):
            read(1000)
    assert ("reading" in stream.getvalue()) is shown
    if shown:
        assert "4.0/4.0 kB" in stream.getvalue()
