"""TOML files: what cannot be read is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetrace.errors import ConfigError
from pipetrace.toml_file import read_toml


def read(path: Path, data: bytes) -> dict[str, object]:
    path.write_bytes(data)
    return read_toml(path, ConfigError, "give a file")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert read(tmp_path / "x.toml", b"\xef\xbb\xbfa = 1\r\n") == {"a": 1}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a", "x.toml is no TOML: "),
        (b"\x00", "x.toml is no TOML: "),
        (b"a = 1\na = 2", "is no TOML: Cannot overwrite a value"),
        (b"a = \xff", "is no TOML: byte 4 is not UTF-8"),
        (b"a = " + b"[" * 5000, "is no TOML: it is nested too deeply"),
        (b"a = " + b"9" * 5000, "is no TOML: a number has more digits than can be read"),
    ],
)
def test_what_is_no_toml(data: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(tmp_path / "x.toml", data)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(("name", "words"), [("absent", "No such file"), (".", "Is a directory"), ("a\0b", "null")])
def test_no_file(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_toml(tmp_path / name, ConfigError, "give a file")
