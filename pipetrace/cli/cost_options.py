"""What actions and transfers cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pipetrace.cli.options import COSTS
from pipetrace.costs import Costs, Link, Network
from pipetrace.costs_io import costs_from_dict, parse_costs
from pipetrace.errors import CostError
from pipetrace.jitter import parse_jitter
from pipetrace.metrics import MemorySizes, sizes_from_dict
from pipetrace.times import parse_time
from pipetrace.toml_file import read_toml


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
