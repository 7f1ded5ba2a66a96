"""Options that several commands share, in groups, and what they mean together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pipetrace.candidates import literal, of_schedule, of_spec
from pipetrace.compare import Candidate
from pipetrace.costs import Costs, Link, Network
from pipetrace.costs_io import costs_from_dict, parse_costs
from pipetrace.errors import CostError, ScheduleError
from pipetrace.jitter import parse_jitter
from pipetrace.metrics import MemorySizes, sizes_from_dict
from pipetrace.schedule import Schedule
from pipetrace.schedules import ScheduleSpec, build_spec, get
from pipetrace.schedules.own import spec_from_file
from pipetrace.shown import printable, shown
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.times import parse_time
from pipetrace.toml_file import read_toml
from pipetrace.trace.formats import Colour
from pipetrace.waiting import Wait, Waiting

SCHEDULE, COSTS, WAITING = "Schedule", "Costs", "Waiting"  # the help's panels

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="A schedule; `pipetrace list` has them all.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="In place of NAME: a schedule in torch's CSV, or FILE.py:BUILDER, a Python function of your own.",
        rich_help_panel=SCHEDULE,
    ),
]
Comms = Annotated[
    bool,
    typer.Option("--comms", help="List sends and receives too, in one order for both sides of each pair of ranks."),
]
ColourBy = Annotated[
    Colour, typer.Option("--colour", help="What shares a colour in a .pftrace; the UI colours a .json by kind.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

Typed = frozenset[str]
"""A parameter of this type is handed the names of all options that stand on the command line itself."""

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


@dataclass(frozen=True)
class ActionCosts:
    """What actions cost."""

    costs: Annotated[
        str | None,
        typer.Option(
            metavar="F=1,…",
            help="Times of F, I, W, B and FB, as F=1,I=1,W=1,B=2: of a stage (a rank may hold several); in compare of "
            "a rank of the plain pipeline.",
            show_default="F=1,I=1,W=1",
            rich_help_panel=COSTS,
        ),
    ] = None
    unit: Annotated[
        str, typer.Option(metavar="UNIT", help="Unit of all times: ns, us, ms or s.", rich_help_panel=COSTS)
    ] = "ms"
    costs_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Costs with values per stage, as TOML.", rich_help_panel=COSTS),
    ] = None

    jitter: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE[:SEED]",
            help="How far single actions scatter: 0.5 is ±50 %, the same by seed in every command.",
            rich_help_panel=COSTS,
        ),
    ] = None

    def of_actions(self) -> Costs:
        """The costs without what this command line says of transfers.

        Raises:
            typer.BadParameter: --costs and --costs-file are both given.
            CostError: A cost cannot be read.
        """
        costs = self._of_actions()
        return costs if self.jitter is None else replace(costs, jitter=parse_jitter(self.jitter))

    def _of_actions(self) -> Costs:
        if self.costs_file is None:
            return parse_costs(self.costs or "", unit=self.unit)
        if self.costs is not None:
            raise typer.BadParameter("--costs-file stands alone; put the costs into the file")
        table = self.table()
        try:
            return costs_from_dict({key: value for key, value in table.items() if key != "memory"})
        except CostError as error:
            raise CostError(f"{self.costs_file}: {error.message}", error.hint) from None

    def all(self, swept: str = "") -> Costs:  # noqa: ARG002 - nothing here is swept
        """All costs that are said."""
        return self.of_actions()

    def memory_sizes(self) -> MemorySizes | None:
        """What the costs file says of memory, None where it says nothing.

        Raises:
            CostError: It cannot be read.
        """
        if "memory" not in self.table():
            return None
        try:
            return sizes_from_dict(self.table()["memory"])
        except CostError as error:
            raise CostError(f"{self.costs_file}: {error.message}", error.hint) from None

    def table(self) -> Mapping[str, Any]:
        """The costs file as it stands; empty without one.

        Raises:
            CostError: It cannot be read.
        """
        if self.costs_file is None:
            return {}
        return read_toml(self.costs_file, CostError, "give a TOML file with costs")


@dataclass(frozen=True)
class AllCosts(ActionCosts):
    """What actions and transfers cost."""

    p2p: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time of a transfer between ranks.", show_default="0", rich_help_panel=COSTS),
    ] = None
    p2p_across: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The same between ranks on two nodes.", rich_help_panel=COSTS),
    ] = None
    ranks_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="Consecutive ranks on one node.", rich_help_panel=COSTS)
    ] = None

    def actions_given(self) -> bool:
        """Whether costs of actions were given."""
        return (self.costs, self.costs_file, self.jitter) != (None, None, None)

    def transfers_given(self) -> bool:
        """Whether the command line says something of transfers."""
        return (self.p2p, self.p2p_across, self.ranks_per_node) != (None, None, None)

    def all(self, swept: str = "") -> Costs:
        """The costs; what the command line says of transfers replaces what the file says.

        Args:
            swept: Name of the option whose value is still to come.

        Raises:
            typer.BadParameter: Options do not go together.
            CostError: A cost cannot be read.
        """
        costs = self.of_actions()
        network = costs.network
        if self.p2p_across is not None:
            network = replace(network, across=Link(parse_time(self.p2p_across, self.unit)))
        if self.ranks_per_node is not None:
            if self.ranks_per_node < 1:
                raise CostError(f"{self.ranks_per_node} ranks a node", "give 1 or more")
            network = replace(network, ranks_per_node=self.ranks_per_node)
        halved = (network.across is None) != (network.ranks_per_node is None)
        if halved and network != costs.network and swept not in ("p2p-across", "ranks-per-node"):
            raise typer.BadParameter(
                "--ranks-per-node and --p2p-across go together: how many ranks, and the time from node to node"
            )
        if halved and swept not in ("p2p-across", "ranks-per-node"):
            raise CostError(f"{self.costs_file}: ranks_per_node and across of the network go together", "give both")
        p2p = costs.p2p if self.p2p is None else parse_time(self.p2p, self.unit)
        return replace(costs, p2p=p2p, network=network if network != Network() else costs.network)


class Channel(StrEnum):
    """Whether a transfer can overtake another between the same two ranks."""

    TAGGED = "tagged"
    ORDERED = "ordered"


@dataclass(frozen=True)
class WaitOptions:
    """How ranks wait for what they receive."""

    wait: Annotated[
        Wait, typer.Option(help="When receives are posted, and what waits for them.", rich_help_panel=WAITING)
    ] = Wait.PREFETCH
    no_reorder: Annotated[
        bool, typer.Option("--no-reorder", help="dataflow: keep the list order.", rich_help_panel=WAITING)
    ] = False
    channel: Annotated[
        Channel,
        typer.Option(
            help="ordered: a pair of ranks' transfers run in the order of posting, as with NCCL.",
            rich_help_panel=WAITING,
        ),
    ] = Channel.TAGGED
    post: Annotated[
        str, typer.Option(metavar="TIME", help="Time of posting a send or receive.", rich_help_panel=WAITING)
    ] = "0"
    spin: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Slowdown of compute while a receive spins: 0.1 is a tenth longer.",
            rich_help_panel=WAITING,
        ),
    ] = 0.0

    def waiting(self, unit: str) -> Waiting:
        """The way of waiting, with times in `unit`.

        Raises:
            typer.BadParameter: Options do not go together.
            CostError: A value is out of range.
        """
        if self.no_reorder and self.wait is not Wait.DATAFLOW:
            raise typer.BadParameter("--no-reorder goes with --wait dataflow; the others never leave the list order")
        return Waiting(
            policy=self.wait,
            reorder=not self.no_reorder,
            ordered=self.channel is Channel.ORDERED,
            post=parse_time(self.post, unit),
            spin=self.spin,
        )


def listed(schedule: Schedule, comms: bool) -> Schedule:
    """A schedule with its sends and receives in the lists where `comms` says so."""
    if not comms or schedule.has_communication:
        return schedule
    from pipetrace.passes import add_communication

    return add_communication(schedule)


def timeline_of(schedule: Schedule, costs: Costs, waiting: Waiting) -> Timeline:
    """The ideal of a schedule."""
    return simulate(schedule, costs, waiting)
