"""What ranks print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_PROFILER_MARKS = "USDT:"
"""What torch's profiler writes whether anything is wrong or not."""

_CHUNK = 1 << 20


def log_name(rank: int) -> str:
    """File name, in a run's scratch folder, of what a rank prints."""
    return f"rank{rank}.log"


def without_marks(text: str) -> str:
    """What a rank printed, without the profiler's marks."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_PROFILER_MARKS))


class RankOutput:
    """Reads what ranks print while they do.

    Args:
        scratch: Folder in which their output lies.
        ranks: How many.
    """

    def __init__(self, scratch: Path, ranks: int) -> None:
        self._files = [scratch / log_name(rank) for rank in range(ranks)]
        self._read = [0] * ranks

    def new_lines(self, *, whole: bool) -> Iterator[str]:
        """What was printed since the last call, line by line, each after "rank 2: ".

        Args:
            whole: Leave a line that has no end yet for later.
        """
        for rank, path in enumerate(self._files):
            for line in self._of(rank, path, whole):
                text = line.decode("utf-8", errors="replace").rstrip("\r\n")
                if text and not text.startswith(_PROFILER_MARKS):
                    yield f"rank {rank}: {text}"

    def _of(self, rank: int, path: Path, whole: bool) -> Iterator[bytes]:
        try:
            file = path.open("rb")
        except OSError:
            return  # not there yet
        with file:
            file.seek(self._read[rank])
            while line := file.readline(_CHUNK):
                if whole and not line.endswith(b"\n") and len(line) < _CHUNK:
                    return
                self._read[rank] += len(line)
                yield line
