"""Which schedule, and how large: what a NAME or --from is built with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipetrace.candidates import literal, of_schedule, of_spec
from pipetrace.cli.options import SCHEDULE
from pipetrace.compare import Candidate
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules import ScheduleSpec, build_spec, get
from pipetrace.schedules.own import spec_from_file
from pipetrace.shown import printable, shown

DEFAULT_RANKS, DEFAULT_MICROBATCHES = 4, 8


@dataclass(frozen=True)
class Sizes:
    """What a schedule is built with."""

    ranks: Annotated[
        int | None, typer.Option("-p", "--ranks", help="Pipeline ranks.", show_default="4", rich_help_panel=SCHEDULE)
    ] = None
    microbatches: Annotated[
        int | None,
        typer.Option(
            "-m", "--microbatches", help="Microbatches of a step.", show_default="8", rich_help_panel=SCHEDULE
        ),
    ] = None
    chunks: Annotated[
        int | None,
        typer.Option(
            "-v", "--chunks", help="Stages a rank, where a schedule leaves it open.", rich_help_panel=SCHEDULE
        ),
    ] = None
    group: Annotated[
        int | None,
        typer.Option(
            help="Interleaved: microbatches through a chunk before the next one begins.", rich_help_panel=SCHEDULE
        ),
    ] = None
    pipes: Annotated[
        int | None, typer.Option(help="Chimera: pipes, half of them each way.", rich_help_panel=SCHEDULE)
    ] = None
    backward: Annotated[
        str | None,
        typer.Option(metavar="fifo|lifo", help="GPipe: order of the backwards.", rich_help_panel=SCHEDULE),
    ] = None
    memory_chunks: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Most activations in flight, where a schedule takes a limit.", rich_help_panel=SCHEDULE
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of your own builder; repeatable.", rich_help_panel=SCHEDULE),
    ] = None

    @property
    def size(self) -> tuple[int, int]:
        """p and m, or what stands for them."""
        return (
            DEFAULT_RANKS if self.ranks is None else self.ranks,
            DEFAULT_MICROBATCHES if self.microbatches is None else self.microbatches,
        )

    @property
    def options(self) -> dict[str, object]:
        """The builder's options that were given.

        Raises:
            typer.BadParameter: An --option is not NAME=VALUE.
        """
        flags = {
            "chunks": self.chunks,
            "group": self.group,
            "pipes": self.pipes,
            "backward": self.backward,
            "memory": self.memory_chunks,
        }
        named = {name: value for name, value in flags.items() if value is not None}
        return named | own_options(self.option or [], named)

    def schedule(self, name: str | None, source: str | None, costs: Costs) -> Schedule:
        """The schedule that NAME or --from asks for.

        Args:
            name, source: One of them.
            costs: What it is for; some builders look at them.

        Raises:
            typer.BadParameter: The options do not go together.
            ScheduleError: The schedule cannot be built or read.
        """
        if (name is None) == (source is None):
            raise typer.BadParameter(
                "give the NAME of a schedule (see `pipetrace list`), or --from FILE"
                if name is None
                else f"NAME {name!r} and --from {source} both name a schedule; give one of them"
            )
        spec = get(name) if name is not None else own_builder(source or "")
        if spec is not None:
            return build_spec(spec, *self.size, self.options, costs)
        return self._read(Path(source or ""))

    def _read(self, path: Path) -> Schedule:
        if self.options:
            raise ScheduleError(f"{path} is a schedule as it stands", f"it takes no option {min(self.options)!r}")
        schedule = _from_csv(path)
        for option, given, found in (
            ("-p", self.ranks, schedule.ranks),
            ("-m", self.microbatches, schedule.microbatches),
        ):
            if given is not None and given != found:
                raise ScheduleError(f"{option} {given} was given, but {path} has {found}", f"leave {option} out")
        return schedule


def _from_csv(path: Path) -> Schedule:
    from pipetrace.cli.console import say
    from pipetrace.trace.torch_csv import read_csv

    read = read_csv(path)
    for note in read.notes:
        say(f"note: {note}")
    return read.schedule


def own_candidate(source: str) -> Candidate:
    """What --from names, as one that takes part in a comparison."""
    spec = own_builder(source)
    if spec is not None:
        return of_spec(spec, {}, spec.name)
    return of_schedule(_from_csv(Path(source)), printable(Path(source).stem))


def own_builder(source: str) -> ScheduleSpec | None:
    """The builder that --from names; None where it names a CSV."""
    return spec_from_file(source) if source.endswith(".py") or ".py:" in source else None


def own_options(texts: list[str], taken: Collection[str] = ()) -> dict[str, object]:
    """NAME=VALUE as options; a value that TOML can read is what it reads, else text.

    Raises:
        typer.BadParameter: One is not NAME=VALUE, or has a name that another or `taken` has.
    """
    options: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"--option {shown(text)} is not NAME=VALUE")
        if name in options or name in taken:
            raise typer.BadParameter(f"{name} is given twice: {shown(text)} is not the only one")
        options[name] = literal(value)
    return options
