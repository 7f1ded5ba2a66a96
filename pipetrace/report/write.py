"""Files by suffix: one place says which formats there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_to_dict
from pipetrace.errors import OutputError
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.trace.formats import TRACES, Colour, write_trace
from pipetrace.trace.tracks import Labelled

if TYPE_CHECKING:
    from pipetrace.diff_run import RunDiff
    from pipetrace.report.overlap import InParts

IMAGES = (".svg", ".png")
SCHEDULE_SUFFIXES = (*TRACES, ".html", *IMAGES, ".csv")
DIFF_SUFFIXES = (*TRACES, ".html", *IMAGES)


def suffix_of(path: Path, known: Sequence[str]) -> str:
    """The suffix that says in which format `path` is to be written.

    Raises:
        OutputError: It is none of `known`.
    """
    name = path.name.lower()
    for suffix in sorted(known, key=len, reverse=True):
        if name.endswith(suffix):
            return suffix
    raise OutputError(f"cannot tell the format of {path} by its suffix", f"known are {' '.join(known)}")


def write_schedule(
    path: Path,
    schedule: Schedule,
    timeline: Timeline,
    costs: Costs,
    *,
    colour: Colour = Colour.MICROBATCH,
    parts: InParts | None = None,
) -> None:
    """Writes a schedule's ideal: a trace, a page, a picture or a CSV, by suffix.

    Args:
        path: Where to.
        schedule, timeline, costs: The order, its ideal, and what that was simulated with.
        colour: For Perfetto's format.
        parts: How it came to be in parts of MoE layers, if it is; for the page.

    Raises:
        OutputError: The suffix is unknown, or the file cannot be written.
    """
    suffix = suffix_of(path, SCHEDULE_SUFFIXES)
    if suffix in TRACES:
        metadata = {
            "schedule": schedule.name,
            "ranks": schedule.ranks,
            "microbatches": schedule.microbatches,
            "stages": schedule.stages,
            "costs": costs_to_dict(costs),
        }
        write_trace(path, [("ideal", timeline)], schedule=schedule, costs=costs, metadata=metadata, colour=colour)
    elif suffix == ".csv":
        from pipetrace.trace.torch_csv import write_csv

        write_csv(schedule, path)
    elif suffix == ".html":
        from pipetrace.report.page import write_schedule_page

        write_schedule_page(path, schedule, timeline, costs, parts)
    else:
        from pipetrace.report.figure import tile_figure
        from pipetrace.report.image import write_image

        write_image(path, tile_figure([(schedule.name, timeline)]))


def write_diff(path: Path, run: RunDiff, *, colour: Colour = Colour.MICROBATCH) -> None:
    """Writes ideal and measured together: one trace with both, a page, or a picture, by suffix; `colour` as above.

    Raises:
        OutputError: The suffix is unknown, or the file cannot be written.
    """
    suffix = suffix_of(path, DIFF_SUFFIXES)
    both = [(run.base_title, run.diff.ideal), ("measured", run.diff.measured)]
    if suffix in TRACES:
        _write_diff_trace(path, run, both, colour)
    elif suffix == ".html":
        from pipetrace.report.diff_page import write_diff_page

        write_diff_page(
            path,
            run.analysis,
            title=f"{run.schedule.name}: {run.base_title} and measured",
            facts=run.facts,
            held_against=run.held_against,
            missing=run.recording.missing,
            notes=run.recording.notes,
            step_makespans=run.step_makespans,
            chosen_step=run.step,
        )
    else:
        from pipetrace.report.figure import tile_figure
        from pipetrace.report.image import write_image

        write_image(path, tile_figure(both))


def _write_diff_trace(path: Path, run: RunDiff, both: Labelled, colour: Colour) -> None:
    from pipetrace.report.slip_args import slip_args
    from pipetrace.trace.recorded import recorded_by_others

    of = run.analysis
    measured = run.diff.measured
    write_trace(
        path,
        both,
        schedule=run.schedule,
        costs=run.costs if run.before is None else None,
        # Without one clock a slip has no parts on other ranks.
        more=slip_args(of) if of.one_clock and of.clocks is None else None,
        # Of our own runs the files lie in the run folder, and hold little else.
        recorded=recorded_by_others(run.recording, measured) if run.recording.run is None else (),
        metadata=run.to_dict(actions=False),
        colour=colour,
    )


def default_diff_files(traces: Sequence[Path]) -> list[Path]:
    """Where a diff goes when nothing else is said: into the run folder; nowhere for traces of others."""
    from pipetrace.trace.run_folder import DIFF_PAGE, DIFF_TRACE, RUN_FILE

    if len(traces) == 1 and (traces[0] / RUN_FILE).is_file():
        return [traces[0] / DIFF_PAGE, traces[0] / DIFF_TRACE]
    return []
