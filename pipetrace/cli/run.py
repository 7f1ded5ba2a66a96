"""`pipetrace run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import say

HELP = "Run a schedule for real with torch under torch.profiler, one process a rank (CPU, gloo)."
EXAMPLE = "pipetrace run zb-h1 -p 4 -m 8 --costs F=20,I=20,W=20 -o RUN/"


def command(
    sizes: options.Sizes,
    costs: options.ActionCosts,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN/", help="Folder for what the run leaves.")],
    name: options.Name = None,
    source: options.From = None,
    workload: Annotated[
        str, typer.Option(help="sleep (synthetic times, real communication) or transformer (real blocks, autograd).")
    ] = "sleep",
    steps: Annotated[int, typer.Option(help="Profiled steps.")] = 5,
    warmup: Annotated[int, typer.Option(help="Steps before them, not profiled.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Compare loss and gradients with a single process (sleep: the messages).")
    ] = False,
    message_bytes: Annotated[int, typer.Option(help="sleep: bytes of a message.")] = 8192,
    hidden: Annotated[int, typer.Option(help="transformer: hidden size.")] = 128,
    heads: Annotated[int, typer.Option(help="transformer: attention heads.")] = 4,
    layers: Annotated[int, typer.Option(help="transformer: blocks a stage.")] = 1,
    sequence: Annotated[int, typer.Option(help="transformer: tokens of a sequence.")] = 64,
    batch: Annotated[int, typer.Option(help="transformer: sequences of a microbatch.")] = 2,
    dtype: Annotated[str, typer.Option(help="transformer: float32 or float64.")] = "float32",
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds without progress before the run is given up.")] = 60.0,
) -> None:
    from pipetrace.execute import RunConfig
    from pipetrace.execute import run as execute

    of = costs.of_actions()
    schedule = sizes.schedule(name, source, of)
    config = RunConfig(
        workload=workload,
        costs=of,
        steps=steps,
        warmup=warmup,
        check=check,
        message_bytes=message_bytes,
        hidden=hidden,
        heads=heads,
        layers=layers,
        sequence=sequence,
        batch=batch,
        dtype=dtype,
        seed=seed,
        timeout=timeout,
    )
    result = execute(schedule, config, out, say)
    if result.check is not None:
        typer.echo(result.check.text)
    say(f"the run lies in {out}; next: pipetrace diff {out}")
    if result.check is not None and not result.check.passed:
        raise typer.Exit(1)
