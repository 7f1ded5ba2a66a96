"""Options that several commands share, and what they mean together."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_from_dict, parse_costs, parse_time
from pipetrace.errors import CostError, ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules import build

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="A schedule; `pipetrace list` has them all.")]
Ranks = Annotated[int | None, typer.Option("-p", "--ranks", help="Pipeline ranks.", show_default="4")]
Microbatches = Annotated[
    int | None, typer.Option("-m", "--microbatches", help="Microbatches of a step.", show_default="8")
]
From = Annotated[
    Path | None, typer.Option("--from", metavar="FILE.csv", help="A schedule in torch's CSV, in place of NAME.")
]
CostsText = Annotated[
    str | None,
    typer.Option("--costs", help="Times of F, I, W, B and FB, as F=1,I=1,W=1,B=2.", show_default="F=1,I=1,W=1"),
]
Unit = Annotated[str, typer.Option("--unit", help="Unit of the costs: ns, us, ms or s.")]
P2P = Annotated[str | None, typer.Option("--p2p", help="Time of a transfer between ranks.", show_default="0")]
CostsFile = Annotated[
    Path | None, typer.Option("--costs-file", metavar="FILE.toml", help="Costs with values per stage, as TOML.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

DEFAULT_RANKS, DEFAULT_MICROBATCHES = 4, 8


def schedule_of(name: str | None, ranks: int | None, microbatches: int | None, source: Path | None) -> Schedule:
    """The schedule that NAME, -p, -m and --from ask for.

    Raises:
        typer.BadParameter: The options do not go together.
        ScheduleError: The schedule cannot be built or read.
    """
    if source is None:
        if name is None:
            raise typer.BadParameter("give the NAME of a schedule (see `pipetrace list`), or --from FILE.csv")
        return build(
            name,
            DEFAULT_RANKS if ranks is None else ranks,
            DEFAULT_MICROBATCHES if microbatches is None else microbatches,
        )
    if name is not None:
        raise typer.BadParameter(f"NAME {name!r} and --from {source} both name a schedule; give one of them")
    from pipetrace.cli.console import say
    from pipetrace.trace.torch_csv import read_csv

    read = read_csv(source)
    for note in read.notes:
        say(f"note: {note}")
    for option, given, found in (
        ("-p", ranks, read.schedule.ranks),
        ("-m", microbatches, read.schedule.microbatches),
    ):
        if given is not None and given != found:
            raise ScheduleError(f"{option} {given} was given, but {source} has {found}", f"leave {option} out")
    return read.schedule


def costs_of(text: str | None, unit: str, p2p: str | None, file: Path | None) -> Costs:
    """The costs that --costs, --unit, --p2p and --costs-file ask for.

    Raises:
        typer.BadParameter: --costs and --costs-file are both given.
        CostError: A cost cannot be read.
    """
    if file is None:
        return parse_costs(text or "", unit=unit, p2p=0 if p2p is None else parse_time(p2p, unit))
    if text is not None or p2p is not None:
        raise typer.BadParameter("--costs-file stands alone; put costs and p2p into the file")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CostError(f"{file}: {error.strerror}", "give a TOML file with costs") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CostError(f"{file} is no TOML: {error}") from None
    try:
        return costs_from_dict(table)
    except CostError as error:
        raise CostError(f"{file}: {error.message}", error.hint) from None
