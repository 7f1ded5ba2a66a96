"""Files are whole or not there."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from pipetrace.errors import OutputError
from pipetrace.trace.files import replacing
from tests.cli.command import pipetrace


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


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_a_file_is_kept(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before")
    path.chmod(mode)
    with replacing(path) as file:
        (beside,) = set(tmp_path.iterdir()) - {path}
        assert beside.stat().st_mode & 0o777 == mode
        file.write(b"after")
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (mode, b"after")


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    with replacing(tmp_path / "new") as file:
        file.write(b"x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_to_a_piped_stdout_is_written_straight(tmp_path: Path) -> None:
    (tmp_path / "so.json").symlink_to("/dev/stdout")
    ran = pipetrace("gen", "1f1b", "-o", "so.json", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "wrote so.json\n")
    assert json.loads(ran.stdout)["metadata"]["schedule"] == "1f1b"
    assert (tmp_path / "so.json").is_symlink()
