"""Schedules of the same model side by side: what each takes, holds and sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from pipetrace.costs import Costs
from pipetrace.errors import CostError, PipetraceError, ScheduleError, SizeError
from pipetrace.metrics import AllToAlls, Bubbles, PeakInFlight, all_to_alls, bubbles, peak_in_flight_of
from pipetrace.passes import MoeOrder, Overlap, expand_moe, stage_costs, stage_schedule
from pipetrace.same_model import cut
from pipetrace.schedule import Schedule
from pipetrace.shown import shown
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What all schedules of a comparison are built and simulated with.

    Args:
        ranks, microbatches: p and m.
        costs: Of a rank of the plain pipeline, or of a stage-chunk; see `compare`.
        options: Options of builders; each goes to those that take it.
        overlap: How stages are run in parts of MoE layers, with the layers of a stage of the plain pipeline, or of a
            stage-chunk; None where stages have no parts.
        in_stages: Whether whole stages are simulated nevertheless, at what their parts come to.
        waiting: How ranks wait.
        value: Of the swept variable, for a chart's axis, or its place among words; None without a sweep.
        label: The same as it is printed.
    """

    ranks: int
    microbatches: int
    costs: Costs
    options: Mapping[str, object]
    overlap: Overlap | None = None
    in_stages: bool = False
    waiting: Waiting = field(default_factory=Waiting)
    value: float | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A schedule that takes part.

    Args:
        label: As it is printed.
        build: (p, m, options, costs) → Schedule; raises ScheduleError for sizes that it does not take.
        options: Its own options, over the setting's.
        takes: Names of the options that it takes.
        order: Of the parts of its MoE layers, over the setting's.
    """

    label: str
    build: Callable[[int, int, Mapping[str, object], Costs], Schedule]
    options: Mapping[str, object]
    takes: frozenset[str]
    order: MoeOrder | None = None


@dataclass(frozen=True, eq=False)
class Figures:
    """What came out for a schedule.

    Args:
        schedule, timeline: The order and its ideal.
        costs: Of a stage-chunk, with which it was simulated.
        bubbles: Both kinds, of each rank.
        chunks: Peak activations of each rank, in chunks.
        transfers: Messages between ranks in a step: activations and their gradients.
        all_to_alls: Of MoE layers; None for whole stages.
    """

    schedule: Schedule
    timeline: Timeline
    costs: Costs
    bubbles: Bubbles
    chunks: PeakInFlight
    transfers: int
    all_to_alls: AllToAlls | None = None

    @property
    def exposed(self) -> int:
        """Σ ns of all-to-alls without compute of their rank."""
        return 0 if self.all_to_alls is None else int(self.all_to_alls.exposed.sum())

    @property
    def fraction_exposed(self) -> float:
        """The same as a share of all their time."""
        return 0.0 if self.all_to_alls is None else self.all_to_alls.fraction_exposed

    @property
    def size(self) -> Fraction:
        """How much of a plain pipeline's stage one stage is: p / n_stages."""
        return Fraction(self.schedule.ranks, self.schedule.stages)

    @property
    def makespan(self) -> int:
        """ns."""
        return self.bubbles.makespan

    @property
    def global_idle(self) -> float:
        """Σ (makespan - busy) / (p × makespan)."""
        return self.bubbles.fraction

    @property
    def in_span_idle(self) -> float:
        """Σ (own first-to-last span - busy) / (p × makespan)."""
        whole = self.schedule.ranks * self.makespan
        return sum(self.bubbles.in_span_idle) / whole if whole else 0.0

    @property
    def peak_freed_at_input_grad(self) -> float:
        """Most activations that a rank holds if they are freed at I, in those of a full-size stage."""
        return float(max(self.chunks.release_at_input_grad) * self.size)

    @property
    def peak_freed_at_weight_grad(self) -> float:
        """The same if they are freed at W."""
        return float(max(self.chunks.release_at_weight_grad) * self.size)

    @property
    def parameters(self) -> float:
        """Parameters that a rank holds, in those of a full-size stage: 1, or 2 where pipes run both ways."""
        placement = self.schedule.placement
        return float(max(len(placement.held_by(rank)) for rank in range(placement.ranks)) * self.size)


@dataclass(frozen=True, eq=False)
class Row:
    """One schedule at one setting.

    Args:
        candidate, setting: Which.
        figures: None where it cannot be built.
        error: Why it cannot be.
    """

    candidate: Candidate
    setting: Setting
    figures: Figures | None
    error: PipetraceError | None = None

    @property
    def reason(self) -> str:
        """Why it cannot be built, as short as can be."""
        if self.error is None:
            return ""
        # The sizes stand above the table, and what the schedule would need in the hint.
        return (isinstance(self.error, SizeError) and self.error.hint) or self.error.message


@dataclass(frozen=True, eq=False)
class Comparison:
    """All rows, setting by setting, in each the candidates in their order.

    Args:
        rows: At least one of them has figures.
        variable: What was swept; empty without a sweep.
        per_chunk: Whether the costs were of a stage-chunk.
    """

    rows: Sequence[Row]
    variable: str = ""
    per_chunk: bool = False

    @property
    def settings(self) -> list[Setting]:
        """In their order."""
        return list(dict.fromkeys(row.setting for row in self.rows))

    def at(self, setting: Setting) -> list[Row]:
        """The rows of one setting."""
        return [row for row in self.rows if row.setting is setting]


def compare(
    candidates: Sequence[Candidate],
    settings: Sequence[Setting],
    *,
    variable: str = "",
    per_chunk: bool = False,
    each: Callable[[Iterable[tuple[Setting, Candidate]]], Iterable[tuple[Setting, Candidate]]] = iter,
) -> Comparison:
    """Builds and simulates every candidate at every setting.

    Args:
        candidates, settings: At least one of each.
        variable: What differs between the settings.
        per_chunk: Take the costs as those of a stage-chunk. By default they are of a rank of the plain pipeline, so
            that all schedules run the same model: a chunk costs p / n_stages of them, or has p / n_stages of the
            MoE layers.
        each: Passes on what is to be done, and may show how far it is.

    Raises:
        ScheduleError: None of them can be built, or an option is for none of them, or is swept and a candidate has its
            own.
        CostError: The costs cannot be.
    """
    for option in {option for setting in settings for option in setting.options}:
        if not any(option in candidate.takes for candidate in candidates):
            raise ScheduleError(
                f"none of {', '.join(candidate.label for candidate in candidates)} takes the option {option!r}"
            )
        values = {shown(setting.options.get(option)) for setting in settings}
        if len(values) > 1 and (own := next((of for of in candidates if option in of.options), None)):
            raise ScheduleError(
                f"{own.label} has its own {option}, which is swept: every value would be the same",
                "leave it out of the name, or sweep something else",
            )
    work = [(setting, candidate) for setting in settings for candidate in candidates]
    rows = [_row(setting, candidate, per_chunk) for setting, candidate in each(work)]
    faults = [row.error for row in rows if row.error is not None]
    if len(faults) == len(rows):
        raise type(faults[0])(f"none can be built: {faults[0].message}", faults[0].hint)
    return Comparison(rows, variable, per_chunk)


def _row(setting: Setting, candidate: Candidate, per_chunk: bool) -> Row:
    p, m, costs = setting.ranks, setting.microbatches, setting.costs
    options = {name: value for name, value in setting.options.items() if name in candidate.takes}
    options |= candidate.options
    overlap = _overlap_of(setting, candidate)
    if overlap is not None:
        return _row_in_parts(setting, candidate, options, overlap, per_chunk)
    try:
        schedule = candidate.build(p, m, options, costs)
        if not per_chunk and schedule.stages != p:
            costs.check_stages(p, f"the plain pipeline of {p} ranks")
            costs = cut(costs, p, schedule.stages)
            if "costs" in candidate.takes:
                # How many stages it has was not known before.
                schedule = candidate.build(p, m, options, costs)
        of = simulate(schedule, costs, setting.waiting)
    except (ScheduleError, CostError) as error:
        # CostError: costs of stages that this one does not have.
        return Row(candidate, setting, None, error)
    links = schedule.links
    transfers = int(links.crosses(links.inputs).sum() + links.crosses(links.gradients).sum())
    # What was read from a file may be in parts already.
    hidden = all_to_alls(of) if schedule.has_parts else None
    return Row(candidate, setting, Figures(schedule, of, costs, bubbles(of), peak_in_flight_of(of), transfers, hidden))


def _overlap_of(setting: Setting, candidate: Candidate) -> Overlap | None:
    """How a candidate's stages are run in parts; None for whole stages."""
    if candidate.order is None:
        return setting.overlap
    given = setting.overlap or Overlap()
    if not replace(Overlap(), order=candidate.order).splits:
        return Overlap(candidate.order, given.layers)
    return replace(given, order=candidate.order)


def _row_in_parts(
    setting: Setting, candidate: Candidate, options: Mapping[str, object], overlap: Overlap, per_chunk: bool
) -> Row:
    p, m, costs = setting.ranks, setting.microbatches, setting.costs
    try:
        schedule = candidate.build(p, m, options, stage_costs(costs, overlap))
        if not per_chunk and schedule.stages != p:
            layers = Fraction(overlap.layers * p, schedule.stages)
            if layers.denominator != 1:
                least = overlap.layers * layers.denominator
                raise ScheduleError(
                    f"{overlap.layers} layer{'s' * (overlap.layers != 1)} on a rank cannot be cut into "
                    f"{schedule.stages // p} stages of whole ones",
                    f"give --layers {least}, or a multiple of it, or --costs-per chunk",
                )
            costs.check_stages(p, f"the plain pipeline of {p} ranks")
            costs, overlap = cut(costs, p, schedule.stages), replace(overlap, layers=int(layers))
            if "costs" in candidate.takes:
                schedule = candidate.build(p, m, options, stage_costs(costs, overlap))
        if setting.in_stages:
            costs = stage_costs(costs, overlap, schedule)
            schedule = stage_schedule(schedule, overlap)
        else:
            schedule = expand_moe(schedule, overlap, costs)
        of = simulate(schedule, costs, setting.waiting)
    except (ScheduleError, CostError) as error:
        return Row(candidate, setting, None, error)
    hidden, links = None if setting.in_stages else all_to_alls(of), schedule.links
    transfers = int(links.crosses(links.inputs).sum() + links.crosses(links.gradients).sum())
    return Row(candidate, setting, Figures(schedule, of, costs, bubbles(of), peak_in_flight_of(of), transfers, hidden))
