"""`pipetrace open`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli.console import say

HELP = "Open a trace in the Perfetto UI: serves the one file to it from this machine, then ends."
EXAMPLE = "pipetrace open zb-h1.json"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.")],
    ui: Annotated[str, typer.Option("--ui", metavar="URL", help="Another Perfetto UI.")] = "https://ui.perfetto.dev",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; ui.perfetto.dev may only fetch from 9001.")] = 9001,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the UI to fetch the file.")] = 600.0,
) -> None:
    from pipetrace.trace.serve import serve_once

    serve_once(file, ui=ui, port=port, open_browser=not no_browser, timeout=timeout, say=say)
