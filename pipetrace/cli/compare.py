"""`pipetrace compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import print_json, say
from pipetrace.cli.cost_options import AllCosts
from pipetrace.cli.moe_options import Grain, MoeOptions
from pipetrace.cli.schedule_options import Sizes, own_candidate
from pipetrace.cli.wait_options import WaitOptions

if TYPE_CHECKING:
    from pipetrace.compare import Candidate, Setting

HELP = "Set schedules of the same model side by side: time, bubbles, memory, messages."
EXAMPLE = "pipetrace compare 1f1b zb-h1 zbv interleaved:v=4 -p 8 --sweep m=16,32,64 -o x.html"


class Per(StrEnum):
    """What the costs are of."""

    RANK = "rank"
    CHUNK = "chunk"


def command(
    sizes: Sizes,
    costs: AllCosts,
    wait: WaitOptions,
    moe: MoeOptions,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Schedules, also as NAME:v=4,group=8; all when none is given."),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Also a schedule in torch's CSV, or FILE.py:BUILDER, your own; repeatable.",
            rich_help_panel=options.SCHEDULE,
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="VAR=A,B,…",
            help="m, p, v, group, pipes, p2p, p2p-across, ranks-per-node, wait, layers, moe-order, "
            "a2a (all-to-all over compute time) or weights (share of W in the backward), and its values.",
        ),
    ] = None,
    costs_per: Annotated[
        Per,
        typer.Option(
            help="rank: costs are of a rank of the plain pipeline, so that all run the same model. chunk: of a stage.",
            rich_help_panel=options.COSTS,
        ),
    ] = Per.RANK,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What a rank has, as 40GiB: which fit? Needs [memory] in --costs-file."),
    ] = None,
    out: Annotated[list[Path] | None, typer.Option("-o", "--out", metavar="FILE.html", help="Write a page.")] = None,
    as_json: options.Json = False,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.advice import advise
    from pipetrace.candidates import candidates_of, swept, told_apart
    from pipetrace.compare import Setting, compare
    from pipetrace.report.write import suffix_of

    for file in out or []:
        suffix_of(file, (".html",))
    swept_option = (sweep or "").partition("=")[0].strip()
    _refuse_what_is_swept(swept_option, typed)
    of, overlap = moe.costs_and_overlap(costs, swept_option)
    in_stages = moe.grain is Grain.STAGE
    settings = [Setting(*sizes.size, of, sizes.options, overlap, in_stages, wait.waiting(costs.unit))]
    variable = ""
    if sweep is not None:
        variable, settings = swept(sweep, settings[0], costs.unit)
    bytes_of = costs.memory_sizes()
    if bytes_of is not None and bytes_of.stages and costs_per is not Per.CHUNK:
        raise typer.BadParameter("[memory] by stage goes with --costs-per chunk: schedules cut the model differently")
    limit = None if memory is None else _limit(memory)
    if limit is not None and bytes_of is None:
        raise typer.BadParameter("--memory needs the model's sizes: [memory] in a --costs-file")
    files = list(dict.fromkeys(sources or []))
    own = told_apart([own_candidate(file) for file in files], files)
    comparison = compare(
        [*candidates_of(names or [], everything=not files), *own],
        settings,
        variable=variable,
        per_chunk=costs_per is Per.CHUNK,
        each=_shown,
    )
    if bytes_of is not None:
        most = max(row.figures.schedule.stages for row in comparison.rows if row.figures)
        bytes_of.check_stages(most, "what has most of them")
    advice = advise(comparison, bytes_of, limit) if bytes_of is not None and limit is not None else []
    if as_json:
        from pipetrace.report.compare_table import comparison_json

        print_json(comparison_json(comparison, sizes=bytes_of, limit=limit, advice=advice))
    else:
        from pipetrace.report.compare_table import print_comparison

        print_comparison(comparison, sizes=bytes_of, advice=advice)
    for file in out or []:
        from pipetrace.report.compare_page import write_comparison_page

        write_comparison_page(file, comparison, sizes=bytes_of, advice=advice)
        say(f"wrote {file}")


_OPTION_OF = {"m": "microbatches", "p": "ranks", "v": "chunks", "weights": ""}  # --weights says something else


def _refuse_what_is_swept(variable: str, typed: options.Typed) -> None:
    """An option that the sweep replaces with each of its values would be lost without a word."""
    option = _OPTION_OF.get(variable, variable)
    if option.replace("-", "_") in typed:
        given = f"-{variable}" if len(variable) == 1 else f"--{variable}"
        raise typer.BadParameter(f"{given} and --sweep {variable}=… both say what {variable} is; leave one out")


def _limit(text: str) -> int:
    """Bytes that a rank has; a bare number is more likely to be GiB than meant."""
    from pipetrace.errors import CostError
    from pipetrace.metrics import parse_size

    if text.strip().replace(".", "", 1).isdigit() and float(text) < 2**20:
        raise CostError(f"--memory {text.strip()} is {text.strip()} bytes", f"give a unit: --memory {text.strip()}GiB")
    return parse_size(text)


def _shown(work: Iterable[tuple[Setting, Candidate]]) -> Iterable[tuple[Setting, Candidate]]:
    """How far it is, where someone looks on."""
    if not sys.stderr.isatty():
        return work
    from rich.console import Console
    from rich.progress import track

    return track(list(work), "comparing", console=Console(stderr=True), transient=True)
