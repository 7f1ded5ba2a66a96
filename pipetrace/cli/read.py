"""`pipetrace read`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json
from pipetrace.cli.progress import reading_progress
from pipetrace.cli.reading_options import Reading
from pipetrace.cli.schedule_options import Sizes
from pipetrace.costs import Costs
from pipetrace.errors import OutputError
from pipetrace.schedule import Schedule

HELP = "Tell what is in somebody's torch.profiler traces: ranks, actions found, bubbles, what could not be found."
EXAMPLE = "pipetrace read RUN/"


def command(
    sizes: Sizes,
    reading: Reading,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACES", help="Trace files, or folders of them.")],
    source: options.From = None,
    reduce: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Only write what is left of each rank's trace there: some kilobytes that stand for it in read, fit "
            "and diff, so that each node can reduce its own.",
        ),
    ] = None,
    as_json: options.Json = False,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.report.recording import print_recording, recording_summary
    from pipetrace.run_record import contradictions
    from pipetrace.trace.torch_profiler import read_recording

    schedule = reading.what_was_run(sizes, source, Costs(), typed)
    if reduce is not None:
        _reduce(traces, reduce, reading, schedule)
        return
    with reading_progress(traces) as progress:
        recording = read_recording(traces, schedule, progress=progress, **reading.options())
    if schedule is not None:
        recording = replace(recording, notes=(*contradictions(schedule, recording), *recording.notes))
    if as_json:
        print_json(recording_summary(recording))
    else:
        print_recording(recording)


def _reduce(traces: list[Path], folder: Path, reading: Reading, schedule: Schedule | None) -> None:
    from pipetrace.cli.console import say
    from pipetrace.trace.reduced import write_reading
    from pipetrace.trace.run_folder import RUN_FILE, SCHEDULE_FILE, schedule_file
    from pipetrace.trace.torch_csv import read_csv, write_csv
    from pipetrace.trace.torch_profiler import read_ranks

    taken = reading.options()
    with reading_progress(traces) as progress:
        readings = read_ranks(
            traces, schedule, labels=taken["labels"], mesh=taken["mesh"], progress=progress, jobs=taken["jobs"]
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror or error}") from None
    for of in readings:
        say(f"wrote {write_reading(folder, of)}")
    beside, order = schedule_file(traces), folder / SCHEDULE_FILE
    if schedule is None and beside is not None:
        schedule = read_csv(beside).schedule
    if schedule is not None and not (folder / RUN_FILE).is_file():  # so that `diff` needs nothing else
        write_csv(schedule, order)
        say(f"wrote {order}")
