"""How ranks wait for what they receive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from pipetrace.cli.options import WAITING
from pipetrace.times import parse_time
from pipetrace.waiting import Wait, Waiting


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
