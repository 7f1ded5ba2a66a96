"""Files are whole or not there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipetrace.errors import OutputError
from pipetrace.trace.files import replacing


def test_replaces_the_file_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with replacing(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def fail(path: Path, error: BaseException) -> None:
    with replacing(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError("a bug stays a bug"), ValueError),
        (OSError(28, "No space left on device"), OutputError),
    ],
)
def test_leaves_nothing_when_the_block_fails(
    tmp_path: Path, error: BaseException, expected: type[BaseException]
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with pytest.raises(expected) as caught:
        fail(path, error)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    if expected is OutputError:
        assert str(caught.value) == f"{path} cannot be written: No space left on device"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"before")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with replacing(link) as file:
        file.write(b"after")
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == b"after"


def test_a_pipe_is_written_straight(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    with replacing(fifo) as file:
        file.write(b"through")
    reader.join(10)
    assert got == [b"through"]
    assert fifo.is_fifo()


@pytest.mark.parametrize("name", ["absent/out", "a\0b", "x" * 300, ""])
def test_says_in_one_line_that_it_cannot(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="cannot be written") as caught, replacing(tmp_path / name) as file:
        file.write(b"x")
    assert "\n" not in str(caught.value)
    assert not [p for p in tmp_path.iterdir() if p.is_file()]
