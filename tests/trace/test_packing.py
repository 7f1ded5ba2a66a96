"""Compression by name."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from pipetrace.trace.packing import packing

CONTENT = b"the same line\n" * 5000


@pytest.mark.parametrize("fast", [True, False])
def test_what_is_packed_is_read_by_any_gzip(fast: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fast:
        monkeypatch.setitem(sys.modules, "isal", None)
    for name in ("a.json.gz", "b.GZ"):
        with packing(tmp_path / name) as file:
            file.write(CONTENT[:100])
            file.write(CONTENT[100:])
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed) == CONTENT
    assert len(packed) < len(CONTENT) / 50
    assert (tmp_path / "b.GZ").read_bytes() == packed
    assert ("isal.igzip" in sys.modules) or not fast


def test_other_names_are_not_packed(tmp_path: Path) -> None:
    with packing(tmp_path / "a.gz.json") as file:
        file.write(CONTENT)
    assert (tmp_path / "a.gz.json").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["a.json.gz", "a.json"])
def test_a_block_that_fails_leaves_what_was_there(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"before")

    def fail() -> None:
        with packing(tmp_path / name) as file:
            file.write(CONTENT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / name).read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [tmp_path / name]
