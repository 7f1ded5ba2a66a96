"""The run folder: taken before a rank starts, filled when the run has ended.

Until then all that the run writes lies in a hidden folder inside, so that a start that fails leaves an earlier run as
it was, and files of two runs never stand side by side.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipetrace.errors import OutputError, TraceError
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import (
    DIFF_PAGE,
    DIFF_TRACE,
    RUN_FILE,
    SCHEDULE_FILE,
    RunInfo,
    read_run_info,
    write_run_info,
)
from pipetrace.trace.torch_csv import write_csv

_TRACE = re.compile(r"rank\d+_trace\.json\.gz")
_OF_RANKS = re.compile(r"rank\d+_(?:trace\.json\.gz(?:\.partial)?|error\.txt)")
_STAGING = ".pipetrace-run-"
_HINT = "give a folder that can be written"


def error_name(rank: int) -> str:
    """File name of what a rank that failed had to say."""
    return f"rank{rank}_error.txt"


@dataclass(frozen=True, slots=True)
class Claim:
    """A run folder that is this run's until it has ended.

    Args:
        folder: The run folder.
        staging: Hidden folder in it, where the run writes.
        replaces: Whether an earlier run lies in the folder.
    """

    folder: Path
    staging: Path
    replaces: bool

    def settle(self) -> None:
        """Moves what the run wrote into its place, and what an earlier run left away.

        Where nothing was recorded, an earlier run stays as it is.

        Raises:
            OSError: The folder has gone, or cannot be written any more.
        """
        written = {path.name: path for path in self.staging.iterdir()}
        if self.replaces and not any(map(_TRACE.fullmatch, written)):
            return
        # In this order nothing of the earlier run ever stands beside the new run's description.
        for path in list(self.folder.iterdir()):
            if _OF_RANKS.fullmatch(path.name) or path.name in (DIFF_PAGE, DIFF_TRACE):
                path.unlink()
        for name in sorted(written, key=lambda name: name not in (RUN_FILE, SCHEDULE_FILE)):
            if not name.endswith(".partial"):
                written[name].replace(self.folder / name)


@contextmanager
def claim(folder: Path, schedule: Schedule, info: RunInfo) -> Iterator[Claim]:
    """Makes the folder ready, and at the block's end, whichever way it ends, settles what was written.

    A folder with an earlier run in it is used again. Files that no run made are left alone.

    Raises:
        OutputError: The folder cannot be made or written, holds something other than a run, or another run has it.
    """
    made: list[Path] = []
    lock = -1
    try:
        made += [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        replaces = _look(folder)
        staging = _stage(folder, schedule, info)
    except BaseException as error:
        _unmake(made, lock)
        if isinstance(error, OSError):
            raise OutputError(f"{error.filename or folder}: {error.strerror or error}", _HINT) from None
        if isinstance(error, ValueError):  # a NUL in the name
            raise OutputError(f"{str(folder)!r}: {error}", _HINT) from None
        raise
    claimed = Claim(folder, staging, replaces)
    try:
        try:
            yield claimed
        except BaseException:
            # What broke the run says more than that the folder is gone as well.
            with suppress(OSError):
                claimed.settle()
            raise
        try:
            claimed.settle()
        except OSError as error:
            raise OutputError(
                f"the run has ended, but {folder} cannot be written any more: {error.strerror or error}", _HINT
            ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int:
    """A descriptor that holds the folder; the system lets go of it when the process ends, however it does."""
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise OutputError(
            f"another run is writing into {folder}", "wait until it has ended, or give another folder"
        ) from None
    except OSError:
        # Not every network file system can lock a folder. What lies there is then guarded by its hidden names only.
        pass
    return lock


def _look(folder: Path) -> bool:
    """Whether an earlier run lies in the folder. What a run that was killed left hidden is cleared away."""
    present = sorted(folder.iterdir())
    for path in present:
        if path.name.startswith(_STAGING):
            shutil.rmtree(path, ignore_errors=True)
    present = [path for path in present if not path.name.startswith(_STAGING)]
    if present and not _holds_run(folder):
        raise OutputError(
            f"{folder} is not empty and holds no run (first entry: {present[0].name})",
            "give a new folder, or one that an earlier run left",
        )
    return bool(present)


def _stage(folder: Path, schedule: Schedule, info: RunInfo) -> Path:
    """The hidden folder, with what is known before the run in it."""
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=folder))
    try:
        write_run_info(staging, info)
        write_csv(schedule, staging / SCHEDULE_FILE)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, OutputError):
            # People know the folder, not what is hidden in it.
            raise OutputError(error.message.replace(str(staging), str(folder)), error.hint) from None
        raise
    return staging


def _unmake(made: list[Path], lock: int) -> None:
    """Removes folders that were made for nothing, inner first."""
    if lock >= 0:
        os.close(lock)
    for path in made:
        with suppress(OSError, ValueError):
            path.rmdir()


def _holds_run(folder: Path) -> bool:
    if not (folder / RUN_FILE).is_file():
        return False
    try:
        read_run_info(folder)
    except TraceError:
        return False
    return True
