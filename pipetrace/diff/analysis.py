"""Everything that a diff tells, each part made when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipetrace.action import NO_ACTION
from pipetrace.costs import Costs
from pipetrace.diff.clocks import Clocks, find_clocks
from pipetrace.diff.contrast import Overlapped, StageShare, overlapped_against_alone, stage_balance
from pipetrace.diff.fault import Case, Fault, FaultKind
from pipetrace.diff.find import Found, find_faults
from pipetrace.diff.match import Diff, diff
from pipetrace.diff.noise import Noise, noise_of
from pipetrace.diff.observe import NOBODY, Observed, observe
from pipetrace.diff.paths import Paths, compare_paths
from pipetrace.diff.reference import References, references
from pipetrace.diff.replay import Graph, Inputs
from pipetrace.diff.slip import Slips, slips
from pipetrace.diff.waits import Awaits, Waits, waits
from pipetrace.diff.waterfall import Waterfall, waterfall
from pipetrace.diff.what_if import WhatIf, other_schedules, what_if
from pipetrace.diff.work import Work
from pipetrace.fit import measured_costs
from pipetrace.metrics import critical_path
from pipetrace.metrics.tiles import Lookup
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Wait, Waiting


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a measured step is against its ideal, or against another measured step.

    Args:
        of: The two, matched.
        schedule: What was run.
        costs: Of the ideal; where `fitted` those of `pipetrace.diff.reference.typical_costs`.
        fitted: Whether no costs were given, so that slow ranks and stages are told by the typical one.
        steps: All measured steps, the chosen one among them; at least that.
        before: Whether `of.ideal` was measured too, before a change.
        one_clock: Whether times of different ranks can be compared at all.
        same_clock: Whether the ranks of the measured step are known to have read one clock: then clocks are no cause.
        waiting: How the ranks of the ideal wait.
    """

    of: Diff
    schedule: Schedule
    costs: Costs
    fitted: bool = False
    steps: Sequence[Timeline] = field(default=())
    before: bool = False
    one_clock: bool = True
    same_clock: bool = False
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def base_name(self) -> str:
        """What the waterfall starts from, in words."""
        if self.before:
            return "the step before"
        return "the ideal with every stage as the typical one" if self.fitted else "the ideal"

    @cached_property
    def work(self) -> Work:
        """The rows of both."""
        return Work.of(self.schedule, [self.of.ideal, self.of.measured])

    @cached_property
    def _reference(self) -> tuple[Inputs, Graph]:
        ideal = self.work.at(self.costs)
        if self.before:
            timeline = self.of.ideal
        elif self.waiting == Waiting():
            return ideal, self.work.graph
        else:
            # Where receives are posted late, or actions leave the list order, that is part of the ideal.
            timeline = simulate(self.schedule, self.costs, self.waiting).from_first_action()
        seen = observe(self.work, timeline, ideal)
        return seen.inputs, seen.graph

    @property
    def reference(self) -> Inputs:
        """What replays what is compared with."""
        return self._reference[0]

    @property
    def reference_graph(self) -> Graph:
        """In which order."""
        return self._reference[1]

    @cached_property
    def _contradicting(self) -> Clocks | None:
        """By how much clocks would have to differ for each transfer to be received after it was sent."""
        measured = self.of.measured
        seen = observe(self.work, measured, self.reference)
        arrived, sent = self.work.sides(measured, seen.start, seen.end)
        return find_clocks(self.work, seen, arrived, sent)

    @property
    def clocks(self) -> Clocks | None:
        """By how much clocks differ, where what was measured cannot have been otherwise."""
        return None if self.same_clock else self._contradicting

    @property
    def swapped(self) -> tuple[int, int]:
        """How many transfers were received before they were sent on one clock, and by how many ns the worst.

        Messages of one pair of ranks then met in another order than their labels say.
        """
        of = self._contradicting if self.same_clock else None
        return (0, 0) if of is None else (of.early, of.worst)

    @cached_property
    def measured(self) -> Timeline:
        """The measured timeline, on one clock; as measured where clocks agree."""
        return self.of.measured if self.clocks is None else self.clocks.corrected(self.of.measured)

    @cached_property
    def seen(self) -> Observed:
        """The same, taken apart."""
        return observe(self.work, self.measured, self.reference)

    @cached_property
    def case(self) -> Case:
        """What faults are looked for in."""
        of = self.of if self.clocks is None else diff(self.of.ideal, self.measured)
        return Case(
            of,
            self.work,
            self.costs,
            self.reference,
            self.reference_graph,
            self.seen,
            posts_ahead=self.waiting.policy is not Wait.INLINE,
        )

    @cached_property
    def waterfall(self) -> Waterfall:
        """From the reference to what was measured."""
        return waterfall(self.work, self.reference, self.reference_graph, self.seen, self._by)

    @cached_property
    def _by(self) -> str:
        """Whether ranks or stages tell more of who is slow: the one with less spread inside."""
        work, seen = self.work, self.seen
        mine = seen.known & self.reference.present & (self.reference.duration > 0) & (seen.inputs.duration > 0)
        if not mine.any():
            return "rank"
        ratio = np.log(seen.inputs.duration[mine] / self.reference.duration[mine])
        spread = {}
        for by, groups in (("rank", work.rank[mine]), ("stage", work.stage[mine])):
            _, of = np.unique(groups, return_inverse=True)
            count = np.bincount(of)
            mean = np.bincount(of, ratio) / count
            # More groups always fit better: each costs a degree of freedom.
            spread[by] = float(((ratio - mean[of]) ** 2).sum()) / max(1, ratio.size - count.size)
        return "stage" if spread["stage"] < 0.9 * spread["rank"] - 1e-9 else "rank"

    @cached_property
    def slips(self) -> Slips:
        """Why each action ended late."""
        return slips(self.work, self.reference, self.reference_graph, self.seen)

    @cached_property
    def waits(self) -> tuple[Waits, Waits]:
        """What idle time waited for, in the ideal and in what was measured."""
        ideal = waits(self.schedule, self.of.ideal, None if self.before else self.costs)
        return ideal, waits(self.schedule, self.measured, unrecorded=self._unrecorded)

    @cached_property
    def absent(self) -> tuple[int, ...]:
        """Ranks that were not recorded: of them nothing is known, and of what others waited for from them no cause."""
        recorded = set(self.of.recorded)
        if self.before:
            recorded &= set(np.unique(self.of.ideal.rank[self.of.ideal.is_compute]).tolist())
        return tuple(sorted(set(self.work.rank[self.work.in_schedule].tolist()) - recorded))

    @cached_property
    def _unrecorded(self) -> Lookup | None:
        """Finds by an action's code the rank that makes what it needs and was not recorded."""
        if not self.absent:
            return None
        mine = np.flatnonzero(self.seen.awaits != NOBODY)
        paired = mine[self.work.partner[mine] != NO_ACTION]
        codes = np.concatenate([self.work.code[mine], self.work.partner[paired]])
        return Lookup(codes, np.concatenate([self.seen.awaits[mine], self.seen.awaits[paired]]))

    @cached_property
    def awaited_unrecorded(self) -> dict[int, int]:
        """ns that each rank stood idle for what ranks that were not recorded make; ranks that did."""
        measured = self.waits[1]
        times = {rank: measured.of(rank)[Awaits.UNRECORDED] for rank in measured.busy}
        return {rank: ns for rank, ns in times.items() if ns}

    @cached_property
    def references(self) -> References | None:
        """The step against costs fitted to it; None where a rank was not recorded, whose costs nobody knows."""
        if self.absent:
            return None
        given = None if self.fitted or self.before else self.costs
        return references(self.schedule, self.steps or [self.measured], self.measured, given)

    @cached_property
    def noise(self) -> Noise:
        """Of the makespan."""
        return noise_of(self.case, [step.makespan for step in self.steps])

    @cached_property
    def found(self) -> Found:
        """The faults, what lengthens the step most first."""
        got_shorter = self.before and self.measured.makespan < self.of.ideal.makespan
        clocks = self._clock_faults()
        return find_faults(self.case, self.noise, clocks, got_shorter=got_shorter, whole=not self.absent)

    def _clock_faults(self) -> list[Fault]:
        clocks = self.clocks
        if clocks is None or not clocks.ahead:
            return []
        effect = self.of.measured.makespan - self.measured.makespan
        largest = max(clocks.ahead.values(), key=abs)
        names = tuple(f"rank {rank}" for rank in clocks.ahead)
        return [Fault(FaultKind.CLOCK, names, largest, clocks.early, clocks.worst, self.seen.inputs, effect=effect)]

    @cached_property
    def _fit(self) -> tuple[Costs, tuple[str, ...]]:
        return measured_costs(self.steps or [self.measured])

    @property
    def fitted_costs(self) -> Costs:
        """The medians of each stage's F, B, I and W."""
        return self._fit[0]

    @property
    def assumed(self) -> tuple[str, ...]:
        """What `fitted_costs` takes for granted, a sentence each; see `pipetrace.fit.measured_costs`."""
        return self._fit[1]

    @cached_property
    def what_if(self) -> list[WhatIf]:
        """Replays with one thing otherwise; none where a rank was not recorded, as it would have been another too."""
        return [] if self.absent else what_if(self.case)

    @cached_property
    def other_schedules(self) -> list[WhatIf]:
        """Ideals of other schedules and numbers of microbatches at this run's costs."""
        return other_schedules(self.schedule, self.fitted_costs)

    @cached_property
    def paths(self) -> Paths:
        """Both critical paths."""
        ideal = critical_path(self.schedule, self.of.ideal, costs=None if self.before else self.costs)
        return compare_paths(ideal, critical_path(self.schedule, self.measured), self._unrecorded)

    @cached_property
    def stages(self) -> list[StageShare]:
        """What each stage takes for a microbatch."""
        return stage_balance(self.steps or [self.measured])

    @cached_property
    def overlapped(self) -> list[Overlapped]:
        """Durations beside transfers and alone."""
        return overlapped_against_alone(self.steps or [self.measured])
