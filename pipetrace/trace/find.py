"""Which files of a folder are the traces of a run's ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipetrace.errors import TraceError
from pipetrace.shown import printable
from pipetrace.trace.run_folder import RUN_FILE

# The most telling names first; of each rank the files of the first that fits are taken.
_OF_A_RANK = (
    re.compile(r"rank(\d{1,6})_trace\.json\.gz", re.ASCII),
    re.compile(r"rank(\d{1,6})(?!\d).*\.json\.gz", re.ASCII | re.DOTALL),
    re.compile(r"rank(\d{1,6})(?!\d).*\.json", re.ASCII | re.DOTALL),
)
_MOST_NAMED = 8
_ANY = re.compile(r".*\.json(\.gz)?", re.DOTALL)


@dataclass(frozen=True)
class Asked:
    """What one path stands for.

    Args:
        path: As it was given.
        files: Trace files, each once over all paths.
        is_folder: Whether what pipetrace itself wrote (an ideal, a diff) may lie among them and is left aside.
        repeated: Whether a file that stands for it was named before.
        passed_over: Files of a folder that look like traces and are not read, and why, in words.
    """

    path: Path
    files: tuple[Path, ...]
    is_folder: bool
    repeated: bool = False
    passed_over: tuple[tuple[Path, str], ...] = ()

    def not_read(self, drawn: Sequence[Path]) -> str | None:
        """What to say of files that look like traces but were not read; None where there are none.

        Args:
            drawn: Those of `files` that hold nothing recorded.
        """
        why = "pipetrace drew it"
        files = [*self.passed_over, *((file, why) for file in drawn if self.is_folder)]
        if not files:
            return None
        some = ", ".join(f"{printable(file.name)} ({why})" for file, why in files[:_MOST_NAMED])
        more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
        return f"{printable(str(self.path))}: not read: {some}{more}"

    def nothing(self) -> TraceError:
        """What to say where none of the files is a recording."""
        if not self.is_folder:
            return TraceError(
                f"{self.path} is no recording: pipetrace wrote it from a schedule or a diff",
                "give torch.profiler's traces, or the folder of a run",
            )
        try:
            runs = sorted(inner.name for inner in self.path.iterdir() if (inner / RUN_FILE).is_file())
        except OSError:
            runs = []
        return TraceError(
            f"{self.path} holds no traces"
            + (f", but folders of runs: {', '.join(runs[:_MOST_NAMED])}" if runs else ""),
            f"give one of these, e.g. {self.path / runs[0]}"
            if runs
            else "traces are files called rank0.json.gz, rank1.json.gz and so on",
        )


def find_traces(paths: Sequence[Path]) -> list[Asked]:
    """The files that are meant.

    Args:
        paths: Trace files, folders of them, or patterns as `run/rank*.json.gz` where nothing is called that.

    Raises:
        TraceError: None were given, a folder cannot be read, or a pattern fits nothing.
    """
    if not paths:
        raise TraceError("no traces were given", "give trace files, or the folder in which they lie")
    seen: set[Path] = set()
    asked = []
    for path in [inner for given in paths for inner in _globbed(given)]:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except (OSError, ValueError) as error:
            raise TraceError(f"{path} cannot be read: {error}") from None
        files, passed_over = ([path], ()) if inside is None else _of_folder(inside)
        new = [file for file in files if _identity(file) not in seen]
        seen.update(map(_identity, new))
        asked.append(Asked(path, tuple(new), inside is not None, len(new) < len(files), passed_over))
    return asked


def _globbed(path: Path) -> list[Path]:
    try:
        if not set("*?[") & set(str(path)) or path.exists():
            return [path]
        found = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
    except (OSError, ValueError, NotImplementedError):
        return [path]  # reading it will say what is wrong
    if not found:
        raise TraceError(f"no file is called as {path} says", "give trace files, or the folder in which they lie")
    return found


def _of_folder(files: Iterable[Path]) -> tuple[list[Path], tuple[tuple[Path, str], ...]]:
    """Rank by rank what is called after it; where nothing is, all JSON. And what looks like a trace, but is left."""
    named: dict[int, list[tuple[int, Path]]] = defaultdict(list)
    others = []
    for file in files:
        if not file.is_file():
            continue
        for place, pattern in enumerate(_OF_A_RANK):
            if (match := pattern.fullmatch(file.name)) is not None:
                named[int(match[1])].append((place, file))
                break
        else:
            if _ANY.fullmatch(file.name):
                others.append(file)
    if not named:
        return others, ()
    chosen, passed_over = [], [(file, "its name tells no rank, as others do") for file in others]
    for rank in sorted(named):
        best = min(place for place, _ in named[rank])
        chosen += [file for place, file in named[rank] if place == best]
        passed_over += [
            (file, f"{printable(chosen[-1].name)} is taken for rank {rank}")
            for place, file in named[rank]
            if place > best
        ]
    return chosen, tuple(passed_over)


def _identity(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError, ValueError):
        return file  # links in a circle, or no name at all: reading it will say so
