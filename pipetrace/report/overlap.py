"""What hides the all-to-alls of MoE layers, and what limits their pairs: for the terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipetrace.action import Part
from pipetrace.costs import Costs
from pipetrace.metrics import AllToAlls, PairOverlap, all_to_alls, limits, pair_overlaps
from pipetrace.metrics.overlap import What
from pipetrace.part_costs import PART_NAMES, LayerCosts
from pipetrace.parts_io import kinds_of
from pipetrace.passes import Overlap, stage_costs, stage_schedule
from pipetrace.passes.steady_pair import SteadyPair, hides_up_to, steady_pair
from pipetrace.report.layout import named_values, table_of
from pipetrace.report.units import TimeUnit, percent, unit_for
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_BEHIND = 3


@dataclass(frozen=True, eq=False)
class InParts:
    """How a schedule came to be in parts of MoE layers.

    Args:
        overlap: How its stages were expanded.
        costs: Of the parts.
        whole: What was expanded.
        waiting: How its ranks wait, for what is held against it.
    """

    overlap: Overlap
    costs: Costs
    whole: Schedule
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def layer(self) -> LayerCosts:
        """Costs of a layer."""
        return self.costs.layer or LayerCosts()

    @property
    def steady(self) -> SteadyPair:
        """A pair in a long run of them."""
        return steady_pair(self.layer, self.overlap)

    @property
    def hides_up_to(self) -> float:
        """Up to which ratio of all-to-all to compute a steady pair hides all."""
        return hides_up_to(self.layer, self.overlap)

    @property
    def makespan_in_stages(self) -> int:
        """ns that whole stages take, at what their parts come to."""
        costs = stage_costs(self.costs, self.overlap, self.whole)
        return simulate(stage_schedule(self.whole, self.overlap), costs, self.waiting).makespan

    def pairs(self, of: AllToAlls) -> list[PairOverlap]:
        """What became of every pair."""
        return pair_overlaps(self.whole, of)


def name_of(what: What) -> str:
    """A kind of work in words.

    >>> from pipetrace.action import Kind, Part
    >>> name_of((Kind.F, Part.DISPATCH)), name_of((Kind.B, None))
    ('dispatch F', 'B')
    """
    kind, part = what
    return kind.name if part is None else f"{part.name.lower()} {kind.name}"


def layer_text(layer: LayerCosts) -> str:
    """What the parts of a layer cost, in words."""
    unit = unit_for(max(max(getattr(of, kind) for kind in "FIW") for of in map(layer.of, Part)))
    texts = {
        name: "/".join(unit.number(getattr(getattr(layer, name), kind)) for kind in kinds_of(name))
        for name in PART_NAMES
    }
    return ", ".join(f"{name} {text}" for name, text in texts.items()) + f" {unit.name} (F/I/W)"


def overlap_tables(timeline: Timeline, unit: TimeUnit, parts: InParts | None = None) -> list[RenderableType]:
    """Hidden and exposed all-to-alls of each rank and of each kind; nothing where a timeline has none.

    Args:
        timeline: Ideal or measured.
        unit: Of all times.
        parts: How an ideal came to be, for what limits its pairs.
    """
    of = all_to_alls(timeline)
    if not len(of.tiles):
        return []
    columns = [of.per_rank(column) for column in (of.duration, of.hidden, of.exposed)]
    ranks = [
        [str(rank) for rank in range(timeline.ranks)],
        *map(unit.column, columns),
        [percent(exposed / whole) if whole else "" for whole, exposed in zip(columns[0], columns[2], strict=True)],
    ]
    out: list[RenderableType] = [named_values(overlap_lines(of, unit, parts))]
    caption = f"all-to-alls in {unit.name}; hidden: while the rank computes"
    out.append(
        table_of(["rank", "all-to-all", "hidden", "exposed", "exposed"], list(zip(*ranks, strict=True)), caption)
    )
    by_what, behind = of.by_what(), of.hidden_behind()
    kinds = [
        [name_of(what) for what in by_what],
        unit.column([whole for whole, _ in by_what.values()]),
        unit.column([exposed for _, exposed in by_what.values()]),
        [behind_text(behind.get(what, {}), whole) for what, (whole, _) in by_what.items()],
    ]
    head = ["all-to-all", "time", "exposed", "hidden behind"]
    out.append(table_of(head, list(zip(*kinds, strict=True)), f"by kind, all ranks, in {unit.name}"))
    return out


def compared_overlap(
    ideal: Timeline, measured: Timeline, unit: TimeUnit, schedule: Schedule, first: str = "ideal"
) -> list[RenderableType]:
    """All-to-alls of an ideal and of a measured timeline side by side; nothing where neither has any.

    Args:
        ideal, measured: The two.
        unit: Of all times.
        schedule: What they are of, for its pairs.
        first: What the ideal, or what stands in its place, is called.
    """
    both = [all_to_alls(timeline) for timeline in (ideal, measured)]
    if not any(len(of.tiles) for of in both):
        return []
    head, columns = ["rank"], [[str(rank) for rank in range(ideal.ranks)]]
    for name in ("duration", "hidden", "exposed"):
        left, right = (of.per_rank(getattr(of, name)) for of in both)
        cells = unit.column([*left, *right])
        title = "all-to-all" if name == "duration" else name
        head += [f"{title}\n{first}", f"{title}\nmeasured"]
        columns += [cells[: len(left)], cells[len(left) :]]
    out: list[RenderableType] = [
        table_of(head, list(zip(*columns, strict=True)), f"all-to-alls in {unit.name}; hidden: while the rank computes")
    ]
    limited = [limits_text(pair_overlaps(schedule, of)) for of in both]
    if any(limited):
        names = (f"pairs limited, {first}", "pairs limited, measured")
        out.append(named_values([(name, text or "none") for name, text in zip(names, limited, strict=True)]))
    return out


def limits_text(pairs: Sequence[PairOverlap]) -> str:
    """How many pairs are limited by what, in words; empty where there is none."""
    return ", ".join(f"{count:,} by {limit}" for limit, count in limits(pairs).items())


def behind_text(hidden: Mapping[What, int], whole: int) -> str:
    """Behind what a kind of all-to-all was hidden, the longest first, as shares of all its time."""
    named = [f"{name_of(what)} {percent(time / whole)}" for what, time in hidden.items()]
    more = [f"{len(named) - _MOST_BEHIND} more"] if len(named) > _MOST_BEHIND else []
    return ", ".join(named[:_MOST_BEHIND] + more)


def overlap_lines(of: AllToAlls, unit: TimeUnit, parts: InParts | None) -> list[tuple[str, str]]:
    """Names and values of what the all-to-alls of a step come to, and of what limits its pairs."""
    whole, exposed = int(of.duration.sum()), int(of.exposed.sum())
    of_which = f", of which exposed {unit.text(exposed)} ({percent(exposed / whole)})" if whole else ""
    lines = [("all-to-all", unit.text(whole) + of_which)]
    if parts is None:
        return lines
    if text := limits_text(parts.pairs(of)):
        lines.append(("pairs limited", text))
        steady = parts.steady
        lanes = f"compute {unit.text(steady.compute)}, all-to-all {unit.text(steady.all_to_all)}"
        ratio = f" ({steady.ratio:.3g} of it)" if steady.compute else ""
        lines.append(("steady pair", f"{unit.text(steady.period)}: {lanes}{ratio}"))
        if steady.compute:
            lines.append(("hides fully up to", f"{parts.hides_up_to:.3g} of the compute"))
    else:
        lines.append(("pairs", "none: no forward beside a backward, so no order hides anything"))
    in_parts, in_stages = of.compute.makespan, parts.makespan_in_stages
    longer = f" ({percent((in_stages - in_parts) / in_parts, signed=True)})" if in_parts else ""
    return [*lines, ("in whole stages", f"{unit.text(in_stages)}{longer}")]


def overlap_dict(timeline: Timeline, parts: InParts | None = None) -> dict[str, Any]:
    """The same as plain values, times in ns; lists have one entry a rank. Empty where a timeline has no all-to-all."""
    of = all_to_alls(timeline)
    if not len(of.tiles):
        return {}
    behind = of.hidden_behind()
    out: dict[str, Any] = {
        "all_to_all_ns": list(of.per_rank(of.duration)),
        "hidden_ns": list(of.per_rank(of.hidden)),
        "exposed_ns": list(of.per_rank(of.exposed)),
        "exposed_fraction": of.fraction_exposed,
        "by_kind": {
            name_of(what): {
                "all_to_all_ns": whole,
                "exposed_ns": exposed,
                "hidden_behind_ns": {name_of(by): time for by, time in behind.get(what, {}).items()},
            }
            for what, (whole, exposed) in of.by_what().items()
        },
    }
    if parts is None:
        return out
    pairs, steady = parts.pairs(of), parts.steady
    return out | {
        "order": str(parts.overlap.order),
        "layers": parts.overlap.layers,
        "whole_stages_makespan_ns": parts.makespan_in_stages,
        "hides_up_to": parts.hides_up_to,
        "steady_pair": {
            "period_ns": steady.period,
            "compute_ns": steady.compute,
            "all_to_all_ns": steady.all_to_all,
        },
        "pairs": [pair.to_dict() for pair in pairs],
    }
