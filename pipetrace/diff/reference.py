"""What a step's costs are held against: costs given for it, and costs that the step itself shows.

With costs fitted to the run the step comes apart into the work itself, what the schedule leaves idle when all stages
are alike, what their not being alike adds, and what is over: overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from pipetrace.costs import Costs, StageCosts
from pipetrace.fit import fit_costs
from pipetrace.metrics import bubbles
from pipetrace.part_costs import PART_NAMES, LayerCosts, PartCosts
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline

_NO_GRADIENT = 0.25
"""Below this share of the other stages' input gradient a first stage makes none: its input needs no gradient, and its
W is the whole backward."""


def makes_no_gradient(costs: Costs) -> bool:
    """Whether the first stage's I does nothing, as torch's does; see `_NO_GRADIENT`."""
    others = [of.I for stage, of in costs.stages.items() if stage > 0 and of.I]
    return bool(others) and 0 in costs.stages and _NO_GRADIENT * float(np.median(others)) > costs.stages[0].I


def typical_costs(fitted: Costs) -> Costs:
    """Costs of a model whose stages are all as the typical one: for each kind the lower of the stages' two middles.

    A stage that is slower than the rest stands out against them; so would one that is faster. Of two stages the faster
    one is typical.

    Args:
        fitted: Costs of every stage, as `fit_costs` gives them.
    """
    return _alike(fitted, lambda values: sorted(values)[(len(values) - 1) // 2])


def balanced_costs(fitted: Costs) -> Costs:
    """Costs of the same work spread evenly: for each kind the mean over the stages."""
    return _alike(fitted, lambda values: round(sum(values) / len(values)))


def _alike(fitted: Costs, of: Callable[[Sequence[int]], int]) -> Costs:
    stages = dict(fitted.stages)
    first = stages.get(0) if makes_no_gradient(fitted) else None
    common: dict[str, int | None] = {}
    for field in fields(StageCosts):
        values = [
            value
            for stage, costs in stages.items()
            if (value := getattr(costs, field.name)) and not (first is not None and stage == 0 and field.name in "IW")
        ]
        common[field.name] = of(values) if values else (None if field.name == "B" else 0)
    alike = StageCosts(**common)  # type: ignore[arg-type]
    made = dict.fromkeys(stages, alike)
    if first is not None:
        made[0] = replace(alike, I=first.I, W=first.W)
    return replace(fitted, default=alike, stages=made, layer=_alike_layers(fitted, of), stage_layers={})


def _alike_layers(fitted: Costs, of: Callable[[Sequence[int]], int]) -> LayerCosts | None:
    """The layer that all stages then have; a part that one of them does not have, as a first input gradient, is not
    counted there."""
    layers = list(fitted.stage_layers.values())
    if not layers:
        return fitted.layer

    def alike(part: str, kind: str) -> int:
        values = [value for layer in layers if (value := getattr(getattr(layer, part), kind))]
        return of(values) if values else 0

    return LayerCosts(**{part: PartCosts(*(alike(part, kind) for kind in ("F", "I", "W"))) for part in PART_NAMES})


@dataclass(frozen=True, slots=True)
class References:
    """A measured step against costs fitted to it, in ns: work + schedule + imbalance + overhead = measured.

    Args:
        work: What a rank would be busy with all stages alike: the mean over the ranks.
        schedule: What the schedule adds to it: the ideal with all stages alike - work.
        imbalance: What unequal stages add: the ideal at the fitted costs - that with all stages alike.
        overhead: What is over: measured - the ideal at the fitted costs. Transfers count here.
        given: The ideal at given costs; None where none were given.
        measured: Makespan.
    """

    work: int
    schedule: int
    imbalance: int
    overhead: int
    given: int | None
    measured: int

    @property
    def fitted(self) -> int:
        """ns of the ideal at the fitted costs."""
        return self.work + self.schedule + self.imbalance


def references(schedule: Schedule, steps: Sequence[Timeline], measured: Timeline, given: Costs | None) -> References:
    """Holds a measured step against its own costs.

    Args:
        schedule: What was run.
        steps: All measured steps, for the fit.
        measured: The one that is looked at.
        given: Costs given for it, if any.

    Raises:
        ScheduleError: The schedule is not valid.
    """
    schedule = schedule.compute_only()
    fitted = fit_costs(steps)
    balanced = simulate(schedule, balanced_costs(fitted))
    work = round(sum(bubbles(balanced).busy) / schedule.ranks)
    ideal = simulate(schedule, fitted).makespan
    return References(
        work,
        balanced.makespan - work,
        ideal - balanced.makespan,
        measured.makespan - ideal,
        None if given is None else simulate(schedule, given).makespan,
        measured.makespan,
    )
