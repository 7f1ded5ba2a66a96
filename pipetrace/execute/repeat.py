"""The same run several times over, and how far its makespans lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipetrace.errors import OutputError, RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.launcher import Launcher
from pipetrace.execute.result import RunResult
from pipetrace.execute.runner import run
from pipetrace.execute.torchrun import elastic
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import RUN_FILE

MOST = 1000


@dataclass(frozen=True, slots=True)
class Repeats:
    """Runs of one schedule.

    Args:
        runs: In the order in which they ran.
        makespans: ns, of each run's step of median makespan.
    """

    runs: tuple[RunResult, ...]
    makespans: tuple[int, ...]

    @property
    def median(self) -> int:
        """ns; the mean of the two middle ones where there is an even number."""
        return round(statistics.median(self.makespans))

    @property
    def spread(self) -> float:
        """(longest - shortest) / median."""
        return (max(self.makespans) - min(self.makespans)) / self.median if self.median else 0.0


def repeat(
    schedule: Schedule, config: RunConfig, folder: Path, times: int, progress: Callable[[str], None] | None = None
) -> Repeats:
    """Runs a schedule several times, each with new processes and connections, torch being imported once.

    Args:
        schedule, config, progress: See `run`.
        folder: Each run gets a folder of its own in it: `1`, `2` and so on.
        times: How many.

    Raises:
        RunError: There are too many; or see `run`. Runs before one that breaks are kept.
        OutputError: Something else lies in the folder: a single run, or more runs than this will be.
    """
    if not 1 <= times <= MOST:
        raise RunError(f"{times} runs", f"give a count between 1 and {MOST}")
    if times > 1 and elastic() is not None:
        raise RunError("torchrun starts one run", "leave the repeating out, or start torchrun as often")
    tell = progress or (lambda _text: None)
    _look(folder, times)
    runs, makespans = [], []
    with Launcher() as launcher:
        for number in range(1, times + 1):
            tell(f"run {number} of {times}")
            result = run(schedule, config, folder / str(number), progress, launcher)
            runs.append(result)
            makespans.append(measured_makespan(result.folder))
    return Repeats(tuple(runs), tuple(makespans))


def measured_makespan(folder: Path) -> int:
    """ns of a run's step of median makespan; of the two middle ones the shorter, for it is a step that there was.

    Raises:
        TraceError: Its traces cannot be read.
    """
    from pipetrace.trace.torch_profiler import read_recording

    return statistics.median_low([step.makespan for step in read_recording([folder]).steps])


def _look(folder: Path, times: int) -> None:
    if (folder / RUN_FILE).exists():
        raise OutputError(f"{folder} holds a single run", "give a new folder for several, or one that several left")
    try:
        numbers = [int(path.name) for path in folder.iterdir() if path.name.isascii() and path.name.isdecimal()]
    except (OSError, ValueError):
        return  # not there yet, or the first run says what is wrong with it
    more = sorted(number for number in numbers if number > times)
    if more:
        raise OutputError(
            f"{folder} holds run {more[-1]} of an earlier repetition, which {times} runs would not replace",
            "give a new folder",
        )
