"""What `pipetrace run` leaves and `pipetrace diff` needs: one folder, nothing beside it.

::

    RUN/run.toml                  what was run: schedule, workload, costs, versions, environment
    RUN/schedule.csv              the actions of every rank, in torch's compute-only dialect
    RUN/rank{r}_trace.json.gz     what torch.profiler saw on global rank r
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_from_dict, costs_to_dict
from pipetrace.errors import CostError, OutputError, TraceError
from pipetrace.shown import printable, shown
from pipetrace.toml_file import read_toml
from pipetrace.trace.files import replacing

SCHEMA = 1
RUN_FILE = "run.toml"
SCHEDULE_FILE = "schedule.csv"


DIFF_PAGE, DIFF_TRACE = "diff.html", "diff.pftrace"
"""What `pipetrace diff` adds when nothing else is said; of no use beside a later run's traces."""


def trace_name(rank: int) -> str:
    """File name of a global rank's trace."""
    return f"rank{rank}_trace.json.gz"


def schedule_file(paths: Iterable[Path]) -> Path | None:
    """The list of what was run that lies in one of some folders, or beside one of some files; None where none does."""
    for path in paths:
        file = (path if path.is_dir() else path.parent) / SCHEDULE_FILE
        if file.is_file():
            return file
    return None


_OF_A_RUN = re.compile(rf"{re.escape(RUN_FILE)}|{re.escape(SCHEDULE_FILE)}|rank[0-9]+_trace\.json\.gz")


def refuse_to_replace(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Sees that no output takes the place of what is read, or of what a run has left.

    Raises:
        OutputError: One would.
    """
    read = {path.resolve() for path in inputs}
    for output in outputs:
        of_a_run = _OF_A_RUN.fullmatch(output.name) and (output.parent / RUN_FILE).is_file()
        if output.resolve() in read or of_a_run:
            raise OutputError(f"{output} is what was recorded, and would be lost", "write into another file")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What was run.

    Args:
        schedule: Name of the schedule.
        ranks: Pipeline ranks of a replica.
        microbatches: Microbatches of a step.
        workload: What ran, e.g. "sleep".
        costs: The costs of the ideal; what `sleep` was told to take.
        costs_are_exact: Whether the workload was made to take these costs (`sleep`), so that they are its ideal.
        steps: Profiled steps.
        options: Everything else the run was given, as plain values.
        versions: Versions of what ran.
        environment: Environment variables that change figures.
        started: Unix time in ns.
        replicas: Copies of the pipeline, one an expert-parallel rank; global ranks count replica by replica.
    """

    schedule: str
    ranks: int
    microbatches: int
    workload: str
    costs: Costs
    costs_are_exact: bool
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    started: int = 0
    replicas: int = 1

    def to_dict(self) -> dict[str, Any]:
        """As plain tables, for TOML and for the traces' metadata."""
        return {
            "schema": SCHEMA,
            "schedule": self.schedule,
            "ranks": self.ranks,
            "microbatches": self.microbatches,
            "workload": self.workload,
            "costs_are_exact": self.costs_are_exact,
            "steps": self.steps,
            "started": self.started,
            "replicas": self.replicas,
            "costs": costs_to_dict(self.costs),
            "options": dict(self.options),
            "versions": dict(self.versions),
            "environment": dict(self.environment),
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> RunInfo:
        """The other way round.

        Raises:
            TraceError: An entry is missing or of the wrong type, or the schema is a newer one.
        """
        if table.get("schema") != SCHEMA:
            raise TraceError(
                f"the run was recorded with schema {shown(table.get('schema'))}, this pipetrace reads {SCHEMA}",
                "read it with the version of pipetrace that wrote it, or run again",
            )
        table = {"replicas": 1, **table}  # what earlier versions wrote has one
        kinds: dict[str, type] = {
            "schedule": str,
            "ranks": int,
            "microbatches": int,
            "workload": str,
            "costs_are_exact": bool,
            "steps": int,
            "started": int,
            "replicas": int,
            "costs": dict,
            "options": dict,
            "versions": dict,
            "environment": dict,
        }
        for name, kind in kinds.items():
            if not isinstance(table.get(name), kind):
                raise TraceError(f"entry {name!r} is missing or no {kind.__name__}")
            number = kind is int and (isinstance(table[name], bool) or not 0 <= table[name] < 1 << 63)
            if number:
                raise TraceError(f"entry {name!r} is {shown(table[name])}, no count")
        try:
            costs = costs_from_dict(table["costs"])
        except CostError as error:
            raise TraceError(error.message, error.hint) from None
        # They are printed, and may come from anybody's file.
        words = {name: printable(table[name]) for name in ("schedule", "workload")}
        return cls(**{name: table[name] for name in kinds} | {"costs": costs, **words})


def write_run_info(folder: Path, info: RunInfo) -> None:
    """Writes `run.toml`.

    Raises:
        OutputError: It cannot be written; one that was there is as it was.
    """
    import tomli_w

    with replacing(folder / RUN_FILE) as file:
        file.write(tomli_w.dumps(info.to_dict()).encode())


def read_run_info(folder: Path) -> RunInfo:
    """Reads `run.toml`.

    Raises:
        TraceError: It is not there, or cannot be understood.
    """
    path = folder / RUN_FILE
    table = read_toml(path, TraceError, "give a folder that `pipetrace run -o` left, or traces and --schedule")
    try:
        return RunInfo.from_dict(table)
    except TraceError as error:
        raise TraceError(f"{path}: {error.message}", error.hint) from None
