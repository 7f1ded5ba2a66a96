from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pytest

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


def _free_port() -> int:
    """One that the system gives nobody who asks for any, until it is taken here."""
    while True:
        port = random.SystemRandom().randrange(61_000, 65_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


def test_it_says_where_and_gives_up_in_time(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    port = _free_port()
    ran = pipetrace("open", tmp_path / "x.json", "--no-browser", "--port", port, "--timeout", 0.5)
    assert f"url=http%3A%2F%2F127.0.0.1%3A{port}%2Fx.json" in ran.stderr or f"127.0.0.1:{port}/x.json" in ran.stderr
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("timeout", ["inf", "1e300", "nan", "-5", "0", "1e10"])
def test_timeouts_that_are_none(timeout: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    assert "a timeout of " in refusal("open", tmp_path / "x.json", "--no-browser", "--timeout", timeout)


@pytest.mark.parametrize("port", [0, -1, 65536, 10**30])
def test_ports_that_are_none(port: int, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    said = refusal("open", tmp_path / "x.json", "--no-browser", "--port", port)
    assert f"port {port} is outside 1 ... 65535" in said


@pytest.mark.parametrize("content", [b"0F0,0B0\n", b"\x89PNG\r\n", b"PK\x03\x04", b"\x00" * 100, b"  \t", b"#!/bin/sh"])
def test_what_is_no_trace(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert "is no trace" in refusal("open", tmp_path / "x.json", "--no-browser")


def _take(taken: socket.socket, port: int) -> None:
    """Listens; another program that has the port, perhaps these tests once more, has it for a moment or for long."""
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for _ in range(600):
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError:
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("content", [b" \n {}", b"\xef\xbb\xbf[]", b"\x1f\x8b", b"\n\x03abc"])
def test_another_ui_takes_any_free_port(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with socket.socket() as taken:
        _take(taken, 9001)
        arguments = ("open", tmp_path / "x.json", "--no-browser", "--timeout", 0.2)
        ran = pipetrace(*arguments, "--ui", "http://127.0.0.1:8000")
        assert "nothing fetched" in ran.stderr
        assert "9001" not in ran.stderr
        assert "port 9001" in refusal(*arguments)


def test_control_characters_of_a_name_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb.json"
    path.write_text("[]")
    ran = pipetrace("open", path, "--no-browser", "--timeout", 0.2, "--ui", "http://127.0.0.1:8000")
    lines = ran.stderr.splitlines()
    assert len(lines) == 3
    assert "a\\x1b[31m\\nb.json onto" in lines[1]
    assert lines[2].startswith("error: nothing fetched ")
