"""Options of schedules in parts of MoE layers, and what they make of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import typer

from pipetrace.cli.cost_options import ActionCosts
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.parts_io import parse_parts
from pipetrace.passes import After, MoeOrder, Overlap, expand_moe, stage_costs, stage_schedule
from pipetrace.report.overlap import InParts
from pipetrace.schedule import Schedule
from pipetrace.shown import shown

MOE = "MoE layers"  # the help's panel
_DEFAULT_ORDER = MoeOrder.DUALPIPE
_OF_STAGES = "--costs is for whole stages, whose costs come out of their parts: give --parts"


class Grain(StrEnum):
    """What a tile is."""

    PART = "part"
    STAGE = "stage"


@dataclass(frozen=True)
class Planned:
    """What is simulated.

    Args:
        schedule: In parts of MoE layers where these are asked for, unless whole stages are wanted.
        costs: What it costs.
        parts: How it came to be in parts; None for whole stages, and for what was read in parts.
    """

    schedule: Schedule
    costs: Costs
    parts: InParts | None = None


@dataclass(frozen=True)
class MoeOptions:
    """MoE layers: how many, in which order their parts run, and what these cost."""

    layers: Annotated[
        int | None,
        typer.Option(metavar="N", help="MoE layers of a stage.", show_default="1", rich_help_panel=MOE),
    ] = None
    moe_order: Annotated[
        MoeOrder | None,
        typer.Option(
            metavar="ORDER",
            help="In which order the parts of a pair run: serial, aligned, megatron or dualpipe.",
            show_default=str(_DEFAULT_ORDER),
            rich_help_panel=MOE,
        ),
    ] = None
    no_split: Annotated[
        bool,
        typer.Option("--no-split", help="megatron, dualpipe: leave a pair's backward whole.", rich_help_panel=MOE),
    ] = False
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="mlp=…,attn=…",
            help="Behind which part each W runs: attn.F, mlp.F, attn.I, mlp.I or end.",
            rich_help_panel=MOE,
        ),
    ] = None
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="attn=1,…",
            help="Times of a layer's parts, as attn=1,mlp=2,a2a=1.5, of one kind as attn.W=0.5; 1 where not named.",
            rich_help_panel=MOE,
        ),
    ] = None
    grain: Annotated[
        Grain | None,
        typer.Option(
            help="part: both lanes. stage: whole stages, at what their parts come to.",
            show_default="part",
            rich_help_panel=MOE,
        ),
    ] = None

    def costs_and_overlap(self, given: ActionCosts, swept: str = "") -> tuple[Costs, Overlap | None]:
        """All costs, and how parts run: None where nothing was said of MoE layers, here or in the costs.

        Args:
            given: What else was said of costs.
            swept: Name of the option whose value is still to come.

        Raises:
            typer.BadParameter, CostError, ScheduleError: The options cannot be read or do not go together.
        """
        costs = given.all(swept)
        if self.parts is not None:
            costs = replace(costs, layer=parse_parts(self.parts, unit=given.unit, base=costs.layer))
        overlap = self._overlap(costs)
        if overlap is not None and given.costs is not None:
            raise typer.BadParameter(_OF_STAGES)
        return costs, overlap

    def _overlap(self, costs: Costs) -> Overlap | None:
        given = (self.layers, self.moe_order, self.weights, self.grain, costs.layer, *costs.stage_layers)
        if all(value is None for value in given) and not self.no_split:
            return None
        of = self.moe_order or _DEFAULT_ORDER
        if self.no_split and not Overlap(of).splits:
            raise ScheduleError(f"{of} does not split the backward of a pair anyway", "leave --no-split out")
        return Overlap(of, 1 if self.layers is None else self.layers, not self.no_split, **self._weights())

    @property
    def in_parts(self) -> bool:
        """Whether something was said that only the parts of layers have; a number of layers whole stages have too."""
        return any((self.moe_order, self.weights, self.parts, self.no_split, self.grain))

    def _weights(self) -> dict[str, After]:
        places = {}
        for item in self.weights.split(",") if self.weights else ():
            part, equals, after = item.strip().partition("=")
            if not equals or part not in ("mlp", "attn") or after not in list(After) or f"{part}_weight" in places:
                raise typer.BadParameter(
                    f"--weights {shown(item.strip())}: write mlp=AFTER,attn=AFTER with AFTER one of {', '.join(After)}"
                )
            places[f"{part}_weight"] = After(after)
        return places

    def plan(self, build: Callable[[Costs], Schedule], given: ActionCosts) -> Planned:
        """The schedule that is simulated, and what it costs.

        Args:
            build: Makes the schedule; some look at costs, and get those of whole stages.
            given: What else was said of costs.

        Raises:
            typer.BadParameter, CostError, ScheduleError: The options cannot be read or do not go together.
        """
        costs, overlap = self.costs_and_overlap(given)
        if overlap is None:
            return Planned(checked(build(costs), given), costs)
        whole = build(stage_costs(costs, overlap))
        if whole.has_parts:
            if any((self.layers, self.moe_order, self.weights, self.no_split, self.grain)):
                raise ScheduleError(
                    f"{whole.name} is in parts of layers already", "of the options for MoE layers only --parts is left"
                )
            return Planned(whole, costs)
        if self.grain is Grain.STAGE:
            return Planned(stage_schedule(whole, overlap), stage_costs(costs, overlap, whole))
        return Planned(expand_moe(whole, overlap, costs), costs, InParts(overlap, costs, whole))


def checked(schedule: Schedule, given: ActionCosts) -> Schedule:
    """A schedule that was built as it stands, where what was said of costs has a meaning for it.

    Raises:
        typer.BadParameter: It was read in parts of layers, and --costs were given.
    """
    if schedule.has_parts and given.costs is not None:
        raise typer.BadParameter(_OF_STAGES)
    return schedule
