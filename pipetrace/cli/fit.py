"""`pipetrace fit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say
from pipetrace.cli.progress import reading_progress
from pipetrace.cli.reading_options import Reading
from pipetrace.cli.schedule_options import Sizes
from pipetrace.costs import Costs

HELP = "Measure what actions and transfers of a run cost, per stage and kind, to simulate with."
EXAMPLE = "pipetrace fit RUN/ -o costs.toml"


def command(
    sizes: Sizes,
    reading: Reading,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACES", help="Trace files, or folders of them.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE.toml", help="The costs, for --costs-file.")
    ] = None,
    source: options.From = None,
    as_json: options.Json = False,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.fit import fit
    from pipetrace.report.fitted import fit_summary, print_fit, write_costs
    from pipetrace.run_record import contradictions
    from pipetrace.trace.run_folder import refuse_to_replace
    from pipetrace.trace.torch_profiler import read_recording

    if out is not None:
        refuse_to_replace([out], traces)
    schedule = reading.what_was_run(sizes, source, Costs(), typed)
    with reading_progress(traces) as progress:
        recording = read_recording(traces, schedule, progress=progress, **reading.options())
    if schedule is not None:
        recording = replace(recording, notes=(*contradictions(schedule, recording), *recording.notes))
    is_told = recording.tells_recompute or (recording.run is not None and recording.run.costs_are_exact)
    fitted = fit(
        recording.steps,
        common_clock=recording.common_clock,
        recomputed=recording.recomputed,
        tells_recompute=is_told,
    )
    if out is not None:
        write_costs(out, fitted, recording)
        say(f"wrote {out}")
    if as_json:
        print_json(fit_summary(fitted, recording))
    else:
        print_fit(fitted, recording)
