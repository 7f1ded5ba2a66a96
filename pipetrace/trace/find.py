"""Which files of a folder are the traces of a run's ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipetrace.errors import TraceError
from pipetrace.trace.load import TraceFile, load_file
from pipetrace.trace.reading.source import Progress
from pipetrace.trace.run_folder import DIFF_TRACE, RUN_FILE

# The most telling names first; of each rank the files of the first that fits are taken.
_OF_A_RANK = (
    re.compile(r"rank(\d{1,6})_trace\.json\.gz", re.ASCII),
    re.compile(r"rank(\d{1,6})(?!\d).*\.json\.gz", re.ASCII | re.DOTALL),
    re.compile(r"rank(\d{1,6})(?!\d).*\.json", re.ASCII | re.DOTALL),
)
_MOST_NAMED = 8
_ANY = re.compile(r".*\.json(\.gz)?", re.DOTALL)


def load_traces(paths: Sequence[Path], progress: Progress | None = None) -> list[TraceFile]:
    """Reads the traces that are meant, each once.

    Args:
        paths: Trace files of one rank each, or folders of them. In a folder what pipetrace itself wrote (an ideal, a
            diff) is left aside.
        progress: Is told how many bytes were read since it was told last.

    Raises:
        TraceError: There is none, or one cannot be read.
    """
    if not paths:
        raise TraceError("no traces were given", "give trace files, or the folder in which they lie")
    seen: set[Path] = set()
    traces: list[TraceFile] = []
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except (OSError, ValueError) as error:
            raise TraceError(f"{path} cannot be read: {error}") from None
        found = 0
        for file in [path] if inside is None else _of_folder(inside):
            if _identity(file) in seen:
                found += 1
                continue
            of_file = load_file(file, progress)
            if not any(trace.drawn for trace in of_file):
                seen.add(_identity(file))
                traces += of_file
                found += 1
            elif inside is None:
                raise TraceError(
                    f"{path} is no recording: pipetrace wrote it from a schedule or a diff",
                    "give torch.profiler's traces, or the folder of a run",
                )
        if not found:
            runs = sorted(inner.name for inner in inside or () if (inner / RUN_FILE).is_file())
            raise TraceError(
                f"{path} holds no traces" + (f", but folders of runs: {', '.join(runs[:_MOST_NAMED])}" if runs else ""),
                f"give one of these, e.g. {path / runs[0]}"
                if runs
                else "traces are files called rank0.json.gz, rank1.json.gz and so on",
            )
    return traces


def _of_folder(files: Iterable[Path]) -> list[Path]:
    """Rank by rank what is called after it; where nothing is, all JSON."""
    named: dict[int, tuple[int, list[Path]]] = {}
    others = []
    for file in files:
        if file.name == DIFF_TRACE or not file.is_file():
            continue
        for place, pattern in enumerate(_OF_A_RANK):
            if (match := pattern.fullmatch(file.name)) is not None:
                best, chosen = named.get(int(match[1]), (len(_OF_A_RANK), []))
                if place < best:
                    named[int(match[1])] = place, [file]
                elif place == best:
                    chosen.append(file)
                break
        else:
            if _ANY.fullmatch(file.name):
                others.append(file)
    return [file for rank in sorted(named) for file in named[rank][1]] or others


def _identity(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError, ValueError):
        return file  # links in a circle, or no name at all: reading it will say so
