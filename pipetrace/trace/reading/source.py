"""The bytes of a file, decompressed piece by piece, so that no file has to fit into memory."""

from __future__ import annotations

import errno
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from pipetrace.errors import TraceError

Progress = Callable[[int], None]
"""Is told how many bytes of files on disk were read since it was told last."""

GZIP = b"\x1f\x8b"
_PIECE = 1 << 20
_AGAIN = "copy the file again, or export anew"


class Source:
    """A file that is read once, from its start.

    Args:
        path: Where it lies; a pipe will do.
        progress: Is told of every piece.

    Raises:
        TraceError: It cannot be read; in one line.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self._path = path
        self._progress = progress
        self.cut: str | None = None
        """What is wrong with the end of compressed data; None as long as nothing is."""
        self.left_out: str | None = None
        """What follows the compressed data and is none; None as long as nothing does."""
        self.ended = False
        self._taken = 0  # bytes of the file
        self._unzip: zlib._Decompress | None = None
        self._waiting = b""  # compressed bytes that no member has taken yet
        try:
            mode = path.stat().st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise OSError(errno.EINVAL, "it is a device, no file")
            self._file: IO[bytes] = path.open("rb")
            first = self._file.read(2)
            if len(first) == 1:
                first += self._file.read(1)
        except OSError as error:
            raise TraceError(f"{path}: {error.strerror or error}") from None
        except ValueError as error:
            raise TraceError(f"{str(path)!r}: {error}") from None
        self._waiting = first
        self._is_gzip = first == GZIP
        self._count(len(first))

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> bytes:
        """The next piece; empty when all was read.

        Raises:
            TraceError: The file cannot be read, or its gzip data is damaged.
        """
        while not self.ended:
            piece = self._inflate() if self._is_gzip else self._plain()
            if piece:
                return piece
        return b""

    def _raw(self) -> bytes:
        try:
            raw = self._file.read(_PIECE // 8 if self._is_gzip else _PIECE)
        except OSError as error:
            raise TraceError(f"{self._path}: {error.strerror or error}") from None
        self._count(len(raw))
        return raw

    def _count(self, read: int) -> None:
        self._taken += read
        if self._progress is not None and read:
            self._progress(read)

    def _plain(self) -> bytes:
        first, self._waiting = self._waiting, b""
        raw = first + self._raw()
        self.ended = not raw
        return raw

    def _inflate(self) -> bytes:
        """One piece; empty between two members, and at the end."""
        raw, self._waiting = self._waiting or self._raw(), b""
        if self._unzip is None:
            raw = raw.lstrip(b"\0")  # tapes and blocks are padded so
            if not raw:
                self.ended = not (more := self._raw())
                self._waiting = more
                return b""
            if len(raw) < 2:
                raw += self._raw()
            if not raw.startswith(GZIP):
                count = len(raw)
                while more := self._raw():
                    count += len(more)
                self.left_out = f"{count} bytes behind the gzip data are none and were left out"
                self.ended = True
                return b""
            self._unzip = zlib.decompressobj(wbits=31)
        elif not raw:
            self.cut = f"the gzip data is cut off (the file ends at byte {self._taken})"
            self.ended = True
            return self._unzip.flush()
        try:
            out = self._unzip.decompress(raw)
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            raise TraceError(
                f"{self._path}: the gzip data is damaged before byte {self._taken}: {reason}", _AGAIN
            ) from None
        if self._unzip.eof:
            self._waiting, self._unzip = self._unzip.unused_data, None
        return out
