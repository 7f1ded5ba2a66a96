"""From traces on disk to a diff: which schedule, which costs, which step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_to_dict
from pipetrace.diff import Analysis, Diff, diff, median_step
from pipetrace.diff.document import document, slip_parts
from pipetrace.diff.reference import typical_costs
from pipetrace.errors import CostError, TraceError
from pipetrace.fit import fit_costs, measured_costs
from pipetrace.metrics import all_to_alls, pair_overlaps
from pipetrace.schedule import Schedule
from pipetrace.shown import printable, shown
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting, waiting_from_dict

if TYPE_CHECKING:
    from pipetrace.trace.torch_profiler import Recording

SCHEMA = 1
_MOST_REPLICAS = 8
_FREE = "transfers free"


@dataclass(frozen=True, eq=False)
class RunDiff:
    """A diff with everything it rests on.

    Args:
        diff: Of the chosen step.
        schedule: What was to be run.
        costs: Costs of the ideal.
        costs_from: Where they come from, in words.
        recording: What was read; of several replicas the first.
        step: Index of the chosen step in `recording.steps`: the one of median makespan.
        fitted: Whether the costs are fitted to this run: those of the typical stage, so that others stand out.
        waiting: How the ranks of the ideal wait.
        before: The earlier run that stands in the ideal's place, if any.
        held_against: That the run says it ran another schedule than this one, in a sentence.
        replica_makespans: ns of the median step of each replica, where there are several.
    """

    diff: Diff
    schedule: Schedule
    costs: Costs
    costs_from: str
    recording: Recording
    step: int
    fitted: bool = False
    waiting: Waiting = field(default_factory=Waiting)
    before: Recording | None = None
    held_against: str | None = None
    replica_makespans: Sequence[int] = ()

    @cached_property
    def analysis(self) -> Analysis:
        """What the two differ in, and why."""
        return Analysis(
            self.diff,
            self.schedule,
            self.costs,
            fitted=self.fitted,
            steps=[step for step in self.recording.steps if step.is_compute.any()],
            one_clock=self.recording.common_clock,
            same_clock=self.recording.one_boot,
            waiting=self.waiting,
            before=self.before is not None,
        )

    @property
    def base_title(self) -> str:
        """What stands above the measured in charts."""
        return "ideal" if self.before is None else "before"

    @property
    def step_makespans(self) -> list[int]:
        """ns of every recorded step."""
        return [step.makespan for step in self.recording.steps]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What a reader must know to trust the figures: (name, value)."""
        run = self.recording.run
        window = f"first to last F, B, I or W of {self.recording.step_names[self.step]}"
        if len(self.recording.steps) > 1:
            window += f", the one of median makespan of {len(self.recording.steps)} steps"
        facts = [("Traces", self.recording.source), ("Window", window), ("Costs of the ideal", self.costs_from)]
        if self.recording.replicas > 1:
            facts.insert(1, ("Replica", self._replica))
        if run is not None:
            options = [f"{printable(key)} {_plain(value)}" for key, value in run.options.items()]
            facts += [
                ("Workload", f"{run.workload}: " + ", ".join(options) if options else run.workload),
                (
                    "Versions",
                    ", ".join(f"{printable(name)} {_plain(version)}" for name, version in run.versions.items()),
                ),
            ]
            environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "not set"} | dict(run.environment)
            facts.append(
                (
                    "Environment",
                    ", ".join(f"{printable(name)}={_plain(value)}" for name, value in sorted(environment.items())),
                )
            )
        return facts

    @property
    def _replica(self) -> str:
        """Which replica, and how long the others took."""
        of = self.replica_makespans
        each = ", ".join(f"{replica}: {ns / 1e6:,.3f} ms" for replica, ns in enumerate(of[:_MOST_REPLICAS]))
        more = (
            f", slowest {max(range(len(of)), key=of.__getitem__)}: {max(of) / 1e6:,.3f} ms"
            if len(of) > _MOST_REPLICAS
            else ""
        )
        return f"0 of {len(of)}; ranks are its pipeline ranks. Median steps: {each}{more} (--replica N|slowest)"

    def _matched(self) -> dict[str, Any]:
        """The two timelines, every action with its slip and, where clocks allow, the parts of it."""
        table = self.diff.to_dict()
        if self.analysis.one_clock:
            parts = slip_parts(self.analysis)
            table["actions"] = [action | parts.get(action["action"], {}) for action in table["actions"]]
        return table

    def to_dict(self, *, actions: bool = True) -> dict[str, Any]:
        """What `diff --json` prints but the verdict's words; times in ns.

        Args:
            actions: Whether single actions are told.
        """
        return {
            "schema": SCHEMA,
            "schedule": self.schedule.name,
            "ranks": self.schedule.ranks,
            "microbatches": self.schedule.microbatches,
            "costs_from": self.costs_from,
            "costs": costs_to_dict(self.costs),
            "step": self.recording.step_names[self.step],
            "step_makespans_ns": self.step_makespans,
            "waiting_policy": str(self.waiting.policy),
            **document(self.analysis),
            **self._all_to_alls(pairs=actions),
            **(self._matched() if actions else self.diff.to_dict(actions=False)),
            "not_found": list(self.recording.missing),
            "notes": [*([] if self.held_against is None else [self.held_against]), *self.recording.notes],
        }

    def _all_to_alls(self, *, pairs: bool) -> dict[str, Any]:
        """Lists in ns, an entry a rank, and with `pairs` one for each pair; nothing where neither timeline has any."""
        timelines = {"ideal": self.diff.ideal, "measured": self.diff.measured}
        both = {which: all_to_alls(timeline.from_first_action()) for which, timeline in timelines.items()}
        if not any(len(of.tiles) for of in both.values()):
            return {}
        return {
            "all_to_all": {
                which: {
                    f"{name}_ns": list(of.per_rank(getattr(of, column)))
                    for name, column in (("time", "duration"), ("hidden", "hidden"), ("exposed", "exposed"))
                }
                | ({"pairs": [pair.to_dict() for pair in pair_overlaps(self.schedule, of)]} if pairs else {})
                for which, of in both.items()
            }
        }


def diff_traces(
    paths: Sequence[Path],
    schedule: Schedule | None = None,
    costs: Costs | None = None,
    transfers: Costs | None = None,
    *,
    before: Sequence[Path] = (),
    reading: Mapping[str, Any] | None = None,
) -> RunDiff:
    """Reads traces and diffs their step of median makespan against the ideal, or against that of another run.

    Args:
        paths: A run folder, or traces of one run.
        schedule: What was run; None where the run folder has it.
        costs: Of the ideal. When None: those the run was made to take, where its workload takes exact costs, else
            the typical stage's by the medians of what was measured.
        transfers: Costs whose transfers the ideal takes, where `costs` is None.
        before: Traces of an earlier run of the same schedule, to be held against in place of an ideal.
        reading: How traces are read: what `read_recording` takes beside paths and schedule, by name.

    Raises:
        TraceError: Nothing can be read, there is no schedule to compare with, or what lies in the run folder
            contradicts what its traces say of themselves.
    """
    from pipetrace.run_record import check_before, check_order, check_record, check_sizes, other_than_recorded
    from pipetrace.trace.recording import replica_makespans
    from pipetrace.trace.run_folder import SCHEDULE_FILE, schedule_file
    from pipetrace.trace.torch_csv import read_csv
    from pipetrace.trace.torch_profiler import read_recording

    recording = read_recording(paths, schedule, **(reading or {}))
    replicas = replica_makespans(recording)
    recording = replace(recording, steps=tuple(step.of_replica(0) for step in recording.steps))
    for folder in paths:
        check_record(folder, recording)
    of_folder = None
    if schedule is None:
        of_folder = schedule_file(paths)
        if of_folder is None:
            raise TraceError(
                f"{recording.source} has no {SCHEDULE_FILE}",
                "give the schedule that was run: --schedule NAME or --from FILE.csv, with -m",
            )
        schedule = read_csv(of_folder, recording.run.schedule if recording.run else None).schedule
        check_sizes(of_folder, schedule, recording)
    other = other_than_recorded(schedule, recording)
    measured = [step for step in recording.steps if step.is_compute.any()]
    if not measured:
        raise TraceError(
            f"{recording.source} holds no labelled action, so there is nothing to compare",
            "`pipetrace read` tells what was found",
        )
    given = costs
    costs, costs_from = _costs(recording, measured, given)
    if transfers is not None and given is None:
        costs = replace(costs, p2p=transfers.p2p, network=transfers.network)
        costs_from = f"{costs_from.removesuffix(f'; {_FREE}')}; transfers as given"
    chosen = measured[median_step(measured)]
    step = next(i for i, candidate in enumerate(recording.steps) if candidate is chosen)
    waiting = _waiting(recording)
    of = diff(simulate(schedule, costs, waiting), chosen)
    if of_folder is not None:
        check_order(of_folder, of, recording)
    if before:
        earlier = read_recording(before, schedule, **(reading or {}))
        check_before(schedule, recording, earlier)
        steps = [step.of_replica(0) for step in earlier.steps if step.is_compute.any()]
        was = steps[median_step(steps)]
        costs, costs_from = fit_costs(steps), f"none: held against {earlier.source}, {len(steps)} steps"
        recording = replace(recording, common_clock=recording.common_clock and earlier.common_clock)
        return RunDiff(
            diff(was, chosen),
            schedule,
            costs,
            costs_from,
            recording,
            step,
            before=earlier,
            held_against=other,
            replica_makespans=replicas,
        )
    fitted = given is None and not (recording.run is not None and recording.run.costs_are_exact)
    return RunDiff(
        of,
        schedule,
        costs,
        costs_from,
        recording,
        step,
        fitted,
        waiting,
        held_against=other,
        replica_makespans=replicas,
    )


def _waiting(recording: Recording) -> Waiting:
    """How the ranks waited; as ever where the run does not say."""
    if recording.run is None:
        return Waiting()
    try:
        return waiting_from_dict(recording.run.options)
    except CostError as error:
        raise TraceError(f"the run's record: {error.message}", error.hint) from None


def _plain(value: object) -> str:
    """A value of a run's record, which may come from anybody's file, as it is printed."""
    return printable(value) if isinstance(value, str) else shown(value)


def _costs(recording: Recording, measured: Sequence[Timeline], given: Costs | None) -> tuple[Costs, str]:
    if given is not None:
        return given, "as given"
    if recording.run is not None and recording.run.costs_are_exact:
        return recording.run.costs, "as the run's workload was made to take"
    costs, assumed = measured_costs(measured)
    told = ["fitted to this run: every stage takes what the typical one does, by medians", *assumed, _FREE]
    return typical_costs(costs), "; ".join(told)
