"""`pipetrace open`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli.console import say
from pipetrace.errors import OutputError
from pipetrace.shown import shown

HELP = "Open a trace in the Perfetto UI: serves the one file to it from this machine, then ends."
EXAMPLE = "pipetrace open zb-h1.json"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.")],
    ui: Annotated[str, typer.Option("--ui", metavar="URL", help="Another Perfetto UI.")] = "https://ui.perfetto.dev",
    port: Annotated[
        int | None,
        typer.Option(
            help="Port on 127.0.0.1; ui.perfetto.dev may only fetch from 9001.",
            show_default="9001; any that is free with another --ui",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the UI to fetch the file.")] = 600.0,
) -> None:
    from pipetrace.trace.serve import serve_once

    if port is not None and not 1 <= port <= 65535:
        raise OutputError(f"port {shown(port)} is outside 1 ... 65535", "leave --port out, or give a free one")
    serve_once(file, ui=ui, port=port, open_browser=not no_browser, timeout=timeout, say=say)
