"""torch.profiler's traces of a run → measured timelines, with what could not be found.

Nothing is adjusted: a tile is what the profiler saw. What was assumed, mended or is missing is said beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.shown import printable
from pipetrace.timeline import Timeline
from pipetrace.trace.assemble import Lost, assemble
from pipetrace.trace.clocks import clocks_of, shifted
from pipetrace.trace.find import load_traces
from pipetrace.trace.labels import Labels, LabelStyle
from pipetrace.trace.load import TraceFile
from pipetrace.trace.rank_steps import Reading, read_steps
from pipetrace.trace.reading.device import OnDevice
from pipetrace.trace.reading.model import (
    WHOLE_TRACE,
    Match,
    RankStep,
    RankSteps,
    device_sums,
    stages_of,
)
from pipetrace.trace.reading.peers import attach_loose
from pipetrace.trace.reading.source import Progress
from pipetrace.trace.reading.wanted import wanted_of
from pipetrace.trace.recording_notes import missing_lines, note_lines
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.shared_device import is_shared, shared_steps

SHARED = "all ranks ran in one process and share a device: what they compute at once takes from each other"
_RANK_IN_NAME = re.compile(r"rank[_\-]?([0-9]{1,6})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankFound:
    """What was found on one rank.

    Args:
        rank: Global rank.
        file: Its trace.
        labels: How its trace is labelled.
        counts: Labels by kind ("F", "SEND_F", …; "F&B" for pairs, "WAIT RECV_F" for waits), over all steps.
        transfers: Sends and receives, labelled or not, over all steps.
        match: How compute was matched with a schedule's order; None where it was labelled, or was not matched.
        kernels: GPU kernels, over the whole trace.
        on_device: What the kernels of all actions of a kind did, by its letter.
        peak_memory: Most bytes allocated, by device, where the profiler recorded it.
    """

    rank: int
    file: Path
    labels: LabelStyle
    counts: Mapping[str, int]
    transfers: int
    match: Match | None = None
    kernels: int = 0
    on_device: Mapping[str, OnDevice] = field(default_factory=dict)
    peak_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Recording:
    """What was read.

    Args:
        source: Where from, in words.
        ranks: Pipeline ranks of a replica: the world size the traces name, or as many as there are, over `replicas`.
        steps: A measured timeline for each profiled step, all ranks on one clock; `epoch` is the Unix time of its zero.
            Without tiles where no trace has labels.
        step_names: Of each.
        found: What was found on each rank that was recorded, by rank.
        missing: What could not be found, a line each.
        notes: What was mended, lost or assumed, a line each.
        run: What pipetrace's own runs say of themselves.
        common_clock: Whether times of different ranks can be compared.
        replicas: Copies of the pipeline. Global ranks count replica by replica.
        offsets: ns that were added to the times of a global rank, so that all are on one clock.
    """

    source: str
    ranks: int
    steps: tuple[Timeline, ...]
    step_names: tuple[str, ...]
    found: tuple[RankFound, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    run: RunInfo | None
    common_clock: bool
    replicas: int = 1
    offsets: Mapping[int, int] = field(default_factory=dict)

    def found_of(self, replica: int) -> tuple[RankFound, ...]:
        """What was found on the ranks of one replica."""
        return tuple(found for found in self.found if found.rank // self.ranks == replica)


def read_recording(
    paths: Sequence[Path],
    schedule: Schedule | None = None,
    *,
    labels: Sequence[str] = (),
    progress: Progress | None = None,
) -> Recording:
    """Reads the traces of one run.

    Args:
        paths: Trace files of one rank each, or folders of them.
        schedule: What was run; ranks on which nothing is labelled are matched with its order.
        labels: Patterns of labels, as `Labels` describes them.
        progress: Is told how many bytes were read since it was told last.

    Raises:
        TraceError: A file cannot be read, is no trace, or the files do not go together; or what is not labelled does
            not fit the schedule; in one line.
    """
    traces = load_traces(paths, progress)
    by_rank = _by_rank(traces)
    world = _world_size(by_rank)
    run, run_notes = _run_info(by_rank)
    if len(traces) == 1 and is_shared(traces[0]):
        steps = shared_steps(traces[0], Labels(labels))
        by_rank = dict.fromkeys(steps, traces[0])
        processes = ranks = len(steps)
        replicas = 1
        run_notes.append(SHARED)
    else:
        processes = world or max(len(by_rank), max(by_rank) + 1)
        ranks, replicas = _shape(processes, run)
        steps = _read_ranks(by_rank, ranks, schedule, Labels(labels))
    _one_pipeline(steps, ranks)
    unattached = list(attach_loose(steps, ranks))
    clocks = clocks_of(by_rank, steps, ranks)
    for rank, by in clocks.offsets.items():
        shifted(steps[rank], by)

    names, unmatched = _step_names(steps)
    lost = Lost()
    timelines = tuple(
        assemble(ranks, _of_step(steps, name), replicas=replicas, common_clock=clocks.common, lost=lost)
        for name in names
    )
    found = tuple(
        RankFound(
            rank,
            by_rank[rank].path,
            of.style,
            dict(sorted(of.counts.items())),
            of.transfers,
            of.match,
            of.kernels,
            device_sums(of),
            of.peak_memory,
        )
        for rank, of in steps.items()
    )
    mended = [note for trace in traces for note in trace.notes]
    return Recording(
        source=printable(", ".join(map(str, paths)) if len(paths) <= 3 else f"{paths[0]} and {len(paths) - 1} more"),
        ranks=ranks,
        steps=timelines,
        step_names=names,
        found=found,
        missing=tuple(missing_lines(processes, steps, names, lost, unmatched)),
        notes=(*mended, *run_notes, *clocks.notes, *unattached, *note_lines(steps, lost)),
        run=run,
        common_clock=clocks.common,
        replicas=replicas,
        offsets=clocks.offsets,
    )


def _shape(processes: int, run: RunInfo | None) -> tuple[int, int]:
    """Pipeline ranks and replicas of so many processes: one replica, unless the run says otherwise of itself."""
    if run is None or run.replicas <= 1:
        return processes, 1
    if run.ranks * run.replicas != processes:
        raise TraceError(
            f"the run names {run.replicas} replicas of {run.ranks} ranks, but the traces are of {processes} ranks",
            "give the traces of one run",
        )
    return run.ranks, run.replicas


def _read_ranks(
    by_rank: Mapping[int, TraceFile], ranks: int, schedule: Schedule | None, labels: Labels
) -> dict[int, RankSteps]:
    steps = {rank: read_steps(trace, rank % ranks, Reading(labels)) for rank, trace in sorted(by_rank.items())}
    silent = [rank for rank, of in steps.items() if of.style is LabelStyle.NONE]
    if schedule is None or not silent:
        return steps
    if ranks != schedule.ranks:
        raise TraceError(
            f"the schedule has {schedule.ranks} ranks, the recording {ranks}",
            "give the schedule that was run, with its -p",
        )
    how = Reading(labels, schedule.name, wanted_of(schedule))
    return steps | {rank: read_steps(by_rank[rank], rank % ranks, how) for rank in silent}


def _by_rank(traces: Sequence[TraceFile]) -> dict[int, TraceFile]:
    """The traces by global rank: as `distributedInfo` says, else pipetrace's metadata, else the file's name."""
    by_rank: dict[int, TraceFile] = {}
    for trace in traces:
        rank = _number(trace.distributed.get("rank"))
        if rank is None:
            rank = _number(trace.pipetrace.get("rank"))
        if rank is None and (match := _RANK_IN_NAME.search(trace.path.name)):
            rank = int(match[1])
        if rank is None:
            raise TraceError(
                f"{trace.path}: neither distributedInfo nor the file's name says which rank this is",
                "call the file rank0.json.gz, with its rank",
            )
        if rank in by_rank:
            raise TraceError(
                f"{trace.path} and {by_rank[rank].path} are both of rank {rank}", "give the traces of one run"
            )
        by_rank[rank] = trace
    return by_rank


def _number(value: Any) -> int | None:
    """A count from 0 that stands in metadata; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value):
        return int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000
    return value if is_count else None


def _world_size(by_rank: Mapping[int, TraceFile]) -> int | None:
    """The world size that all traces that name one agree on."""
    sizes = {rank: size for rank, trace in by_rank.items() if (size := _number(trace.distributed.get("world_size")))}
    if len(set(sizes.values())) > 1:
        (rank, size), (other, different) = next(
            (one, two) for one in sizes.items() for two in sizes.items() if one[1] != two[1]
        )
        raise TraceError(
            f"{by_rank[rank].path} is of {size} ranks, but {by_rank[other].path} of {different}",
            "give the traces of one run",
        )
    world = next(iter(sizes.values()), None)
    if world is not None and max(by_rank) >= world:
        rank = max(by_rank)
        raise TraceError(f"{by_rank[rank].path} is of rank {rank}, but the run has {world} ranks")
    return world


def _one_pipeline(steps: Mapping[int, RankSteps], ranks: int) -> None:
    holder: dict[tuple[int, int, int], int] = {}
    for rank, of in steps.items():
        for pipe, stage in stages_of(of):
            other = holder.setdefault((rank // ranks, pipe, stage), rank)
            if other != rank:
                of_pipe = f" of pipe {pipe}" if pipe else ""
                raise TraceError(
                    f"stage {stage}{of_pipe} was computed on rank {other} and on rank {rank}: "
                    "these are traces of several pipelines",
                    "give the traces of one pipeline's ranks",
                )


def _run_info(by_rank: Mapping[int, TraceFile]) -> tuple[RunInfo | None, list[str]]:
    """What the ranks that say so were run with, and what is odd about that.

    Raises:
        TraceError: They were recorded in different runs.
    """
    infos: dict[int, RunInfo] = {}
    notes = []
    for rank, trace in sorted(by_rank.items()):
        table = trace.pipetrace.get("run")
        if not isinstance(table, dict):
            continue
        try:
            infos[rank] = RunInfo.from_dict(table)
        except TraceError as error:
            notes.append(f"{printable(trace.path.name)}: what was run is not known: {error.message}")
    if not infos:
        return None, notes
    first = min(infos)
    for rank, info in infos.items():
        for what in ("schedule", "ranks", "replicas", "microbatches", "started"):
            one, other = getattr(infos[first], what), getattr(info, what)
            if one != other:
                raise TraceError(
                    f"ranks {first} and {rank} are of different runs: {by_rank[first].path} names {what} {one}, "
                    f"{by_rank[rank].path} {other}",
                    "give the traces of one run",
                )
    notes += _shared_cores(infos[first])
    return infos[first], notes


def _shared_cores(info: RunInfo) -> list[str]:
    """Whether ranks had to take turns on the machine, which no label shows."""
    cpus = info.options.get("cpus")
    processes = info.ranks * info.replicas
    if info.workload == "sleep" or not isinstance(cpus, int) or cpus >= processes:
        return []
    return [f"{processes} ranks shared {cpus} CPUs: what they computed took longer by their waiting for a core"]


def _step_names(steps: Mapping[int, RankSteps]) -> tuple[tuple[str, ...], list[str]]:
    """The steps, in order, and the ranks that lack some."""
    names: dict[str, None] = {}
    for of in steps.values():
        if set(of.steps) != {WHOLE_TRACE}:
            names.update(dict.fromkeys(of.steps))
    if not names:
        return (WHOLE_TRACE,), []
    unmatched = []
    for rank, of in steps.items():
        absent = [name for name in names if name not in of.steps]
        if set(of.steps) == {WHOLE_TRACE} and len(names) == 1:
            continue
        if absent:
            unmatched.append(f"rank {rank} does not have {', '.join(absent[:5])}{' …' if len(absent) > 5 else ''}")
    return tuple(sorted(names, key=_natural)), unmatched


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _of_step(steps: Mapping[int, RankSteps], name: str) -> dict[int, RankStep]:
    return dict(_steps_called(steps, name))


def _steps_called(steps: Mapping[int, RankSteps], name: str) -> Iterator[tuple[int, RankStep]]:
    for rank, of in steps.items():
        # Only where there is one step does a trace without marks belong to it; `_step_names` saw to that.
        step = of.steps.get(name) or (of.steps.get(WHOLE_TRACE) if name != WHOLE_TRACE else None)
        if step is not None:
            yield rank, step
