"""Options of the commands that read traces."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from pipetrace.cli.options import SCHEDULE, Typed
from pipetrace.cli.schedule_options import Sizes
from pipetrace.costs import Costs
from pipetrace.schedule import Schedule


@dataclass(frozen=True)
class Reading:
    """How traces are read."""

    schedule_name: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="NAME",
            help="What was run: where nothing is labelled, compute is matched with its order.",
            rich_help_panel=SCHEDULE,
        ),
    ] = None
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Labels of your own, as `'fwd mb(?P<microbatch>\\d+) stage(?P<stage>\\d+)'`; repeatable.",
        ),
    ] = None

    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="dp=2,pp=4",
            help="How global ranks make up pipelines: sizes in torch's order, the last one counting fastest.",
        ),
    ] = None
    step: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Only this step, by name or number; repeatable.", show_default="all"),
    ] = None
    replica: Annotated[
        str | None,
        typer.Option(metavar="N|slowest", help="Only this copy of the pipeline.", show_default="all; diff: 0"),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes that read at once.", show_default="as many as pay"),
    ] = None

    def options(self) -> dict[str, Any]:
        """What `read_recording` takes beside paths and schedule.

        Raises:
            TraceError: --mesh is none.
        """
        from pipetrace.trace.places import parse_mesh

        return {
            "labels": self.label or (),
            "mesh": None if self.mesh is None else parse_mesh(self.mesh),
            "steps": self.step or (),
            "replica": self.replica,
            "jobs": self.jobs,
        }

    def what_was_run(self, sizes: Sizes, source: str | None, costs: Costs, typed: Typed) -> Schedule | None:
        """The schedule that --schedule or --from names; None where neither was given.

        Args:
            sizes, source, costs: What it is built with.
            typed: What stands on the command line itself: a file's options are for all commands, with or without need.

        Raises:
            typer.BadParameter: Sizes were typed without a schedule.
            ScheduleError: It cannot be built or read.
        """
        if self.schedule_name is not None or source is not None:
            return sizes.schedule(self.schedule_name, source, costs)
        if typed & {field.name for field in fields(Sizes)}:
            raise typer.BadParameter(
                "-p, -m and what else is built with go with --schedule NAME; a run folder has its own"
            )
        return None
