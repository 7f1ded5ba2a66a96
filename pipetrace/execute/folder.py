"""The run folder, made ready before a rank starts, so that what cannot be written is found at once."""

from __future__ import annotations

import re
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

_OF_A_RUN = re.compile(r"rank\d+_(?:trace\.json\.gz(?:\.partial)?|error\.txt)")


def error_name(rank: int) -> str:
    """File name of what a rank that failed had to say."""
    return f"rank{rank}_error.txt"


def prepare_folder(folder: Path, schedule: Schedule, info: RunInfo) -> None:
    """Makes the folder and writes what is known before the run.

    A folder with an earlier run in it is used again: that run's traces, and a diff of them, go, so that ranks of two
    runs never stand side by side. Files that no run made are left alone.

    Raises:
        OutputError: The folder cannot be made or written, or holds something other than a run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        present = sorted(folder.iterdir())
        if present and not _holds_run(folder):
            raise OutputError(
                f"{folder} is not empty and holds no run (first entry: {present[0].name})",
                "give a new folder, or one that an earlier run left",
            )
        for path in present:
            if _OF_A_RUN.fullmatch(path.name) or path.name in (DIFF_PAGE, DIFF_TRACE):
                path.unlink()
        write_run_info(folder, info)
        write_csv(schedule, folder / SCHEDULE_FILE)
    except OSError as error:
        raise OutputError(
            f"{error.filename or folder}: {error.strerror or error}", "give a folder that can be written"
        ) from None


def _holds_run(folder: Path) -> bool:
    if not (folder / RUN_FILE).is_file():
        return False
    try:
        read_run_info(folder)
    except TraceError:
        return False
    return True
