"""`pipetrace read`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json

HELP = "Tell what is in somebody's torch.profiler traces: ranks, actions found, bubbles, what could not be found."
EXAMPLE = "pipetrace read RUN/"


def command(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACES", help="Trace files, or folders of them.")],
    as_json: options.Json = False,
) -> None:
    from pipetrace.report.recording import print_recording, recording_summary
    from pipetrace.trace.torch_profiler import read_recording

    recording = read_recording(traces)
    if as_json:
        print_json(recording_summary(recording))
    else:
        print_recording(recording)
