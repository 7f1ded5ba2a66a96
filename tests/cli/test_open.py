from __future__ import annotations

import socket
from pathlib import Path

from tests.cli.command import misuse, pipetrace, refusal


def test_a_port_in_use(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in refusal("open", tmp_path / "x.json", "--no-browser", "--port", port)


def test_nothing_to_open(tmp_path: Path) -> None:
    assert "nowhere.json" in refusal("open", tmp_path / "nowhere.json", "--no-browser")
    assert str(tmp_path) in refusal("open", tmp_path, "--no-browser")
    assert "FILE" in misuse("open")


def test_it_says_where_and_gives_up_in_time(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ran = pipetrace("open", tmp_path / "x.json", "--no-browser", "--port", port, "--timeout", 0.5)
    assert f"url=http%3A%2F%2F127.0.0.1%3A{port}%2Fx.json" in ran.stderr or f"127.0.0.1:{port}/x.json" in ran.stderr
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
