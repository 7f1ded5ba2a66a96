"""`pipetrace read`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json
from pipetrace.cli.progress import reading_progress
from pipetrace.cli.reading_options import Reading
from pipetrace.costs import Costs

HELP = "Tell what is in somebody's torch.profiler traces: ranks, actions found, bubbles, what could not be found."
EXAMPLE = "pipetrace read RUN/"


def command(
    sizes: options.Sizes,
    reading: Reading,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACES", help="Trace files, or folders of them.")],
    source: options.From = None,
    as_json: options.Json = False,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.report.recording import print_recording, recording_summary
    from pipetrace.trace.torch_profiler import read_recording

    schedule = reading.what_was_run(sizes, source, Costs(), typed)
    with reading_progress(traces) as progress:
        recording = read_recording(traces, schedule, labels=reading.label or (), progress=progress)
    if as_json:
        print_json(recording_summary(recording))
    else:
        print_recording(recording)
