from __future__ import annotations

import gzip
import os
import threading
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.errors import TraceError
from pipetrace.trace.reading.source import Source


def read(path: Path) -> tuple[bytes, Source]:
    with Source(path) as source:
        return b"".join(iter(source.read, b"")), source


@given(st.lists(st.binary(max_size=3000), max_size=4), st.sampled_from([b"", b"\0", b"\0" * 600]))
def test_members_come_out_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], pad: bytes
) -> None:
    path = tmp_path_factory.mktemp("source") / "x"
    path.write_bytes(b"".join(gzip.compress(part) + pad for part in parts))
    data, source = read(path)
    assert data == (b"".join(parts) if parts else b"")
    assert (source.cut, source.left_out) == (None, None)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5_000_000])
def test_plain_bytes_come_as_they_are(tmp_path: Path, size: int) -> None:
    data = os.urandom(size).replace(b"\x1f", b"x")
    (tmp_path / "x").write_bytes(data)
    told: list[int] = []
    with Source(tmp_path / "x", told.append) as source:
        assert b"".join(iter(source.read, b"")) == data
    assert sum(told) == size


def test_every_cut_is_told(tmp_path: Path) -> None:
    data = os.urandom(20_000)
    packed = gzip.compress(data)
    for end in [2, 5, 11, 5_000, len(packed) - 9, len(packed) - 1]:
        (tmp_path / "x").write_bytes(packed[:end])
        found, source = read(tmp_path / "x")
        assert data.startswith(found)
        assert source.cut == f"the gzip data is cut off (the file ends at byte {end})"


def test_what_follows_is_told_and_what_is_damaged_refused(tmp_path: Path) -> None:
    packed = gzip.compress(b"data")
    (tmp_path / "x").write_bytes(packed + b"behind it")
    data, source = read(tmp_path / "x")
    assert (data, source.left_out) == (b"data", "9 bytes behind the gzip data are none and were left out")
    broken = bytearray(packed)
    broken[-6] ^= 1  # of the checksum
    (tmp_path / "x").write_bytes(broken)
    with pytest.raises(TraceError, match=rf"damaged before byte {len(packed)}: incorrect data check"):
        read(tmp_path / "x")
    assert zlib.decompress(packed, wbits=31) == b"data"


def test_a_pipe_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(gzip.compress(b"x" * 100_000)))
    writer.start()
    data, _ = read(path)
    writer.join()
    assert data == b"x" * 100_000


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "absent", "No such"), (tmp_path, "directory"), (Path("/dev/null"), "a device")):
        with pytest.raises(TraceError, match=message):
            read(path)
