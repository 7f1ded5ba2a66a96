"""torch.profiler's traces of a run → measured timelines, with what could not be found.

Nothing is adjusted: a tile is what the profiler saw. What was assumed, mended or is missing is said beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipetrace.action import NO_ACTION
from pipetrace.errors import PipetraceError, TraceError
from pipetrace.schedule import Schedule
from pipetrace.shown import printable
from pipetrace.trace.assemble import Lost, assemble
from pipetrace.trace.clocks import clocks_of, shifted
from pipetrace.trace.find import find_traces
from pipetrace.trace.labels import Labels, LabelStyle
from pipetrace.trace.places import Shape, shape_of
from pipetrace.trace.rank_reading import How, RankReading
from pipetrace.trace.rank_steps import Reading
from pipetrace.trace.reading.model import WHOLE_TRACE, RankStep, RankSteps, device_sums, stages_of
from pipetrace.trace.reading.peers import attach_loose
from pipetrace.trace.reading.rounds import numbered_alike
from pipetrace.trace.reading.source import Progress
from pipetrace.trace.reading.wanted import Wanted, wanted_of
from pipetrace.trace.recording import RankFound, Recording, choose
from pipetrace.trace.recording_notes import missing_lines, note_lines
from pipetrace.trace.reduced import load_readings
from pipetrace.trace.run_folder import RunInfo, schedule_file
from pipetrace.trace.torch_csv import read_csv
from pipetrace.trace.whole_steps import judge, left_out

SHARED = "all ranks ran in one process and share a device: what they compute at once takes from each other"


def read_recording(
    paths: Sequence[Path],
    schedule: Schedule | None = None,
    *,
    labels: Sequence[str] = (),
    mesh: Mapping[str, int] | None = None,
    steps: Sequence[str] = (),
    replica: str | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
) -> Recording:
    """Reads the traces of one run.

    Args:
        paths: Trace files, what `write_readings` wrote of them, folders of either, or patterns of names.
        schedule: What was run; ranks on which nothing is labelled are matched with its order.
        labels: Patterns of labels, as `Labels` describes them.
        mesh: Sizes of the job's dimensions in torch's order, one of them called pp; see `parse_mesh`.
        steps: The steps that are wanted, by name or number; all that are whole where empty.
        replica: The replica that is wanted, its number or "slowest"; all where None.
        progress: Is told how many bytes were read since it was told last.
        jobs: Processes that read at once, see `read_files`; as many as pay where None.

    Raises:
        TraceError: A file cannot be read, is no trace, or the files do not go together; or what is not labelled does
            not fit the schedule; in one line.
    """
    readings = read_ranks(paths, schedule, labels=labels, mesh=mesh, progress=progress, jobs=jobs)
    source = printable(", ".join(map(str, paths)) if len(paths) <= 3 else f"{paths[0]} and {len(paths) - 1} more")
    beside = None if schedule is not None else _beside(paths)
    recording = recording_of(readings, source, schedule, mesh, beside)
    if beside is not None and readings and all(_is_silent(of) for one in readings for of in one.steps.values()):
        # Who ran it left its order, so that it can be matched as if it had been named.
        try:
            readings = read_ranks(paths, beside, labels=labels, mesh=mesh, jobs=jobs)
            recording = recording_of(readings, source, beside, mesh)
        except TraceError as error:
            recording = replace(recording, missing=(*recording.missing, error.message))
    return choose(recording, steps, replica)


def _beside(paths: Sequence[Path]) -> Schedule | None:
    """What was run, by the list that lies beside the traces; None where there is none that can be read."""
    file = schedule_file(paths)
    try:
        return None if file is None else read_csv(file).schedule
    except PipetraceError:
        return None  # who needs it will say so


def _is_silent(of: RankSteps) -> bool:
    return of.style is LabelStyle.NONE and of.match is None


def read_ranks(
    paths: Sequence[Path],
    schedule: Schedule | None = None,
    *,
    labels: Sequence[str] = (),
    mesh: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    jobs: int | None = 1,
) -> list[RankReading]:
    """What each rank did by its own trace; see `read_recording`.

    Raises:
        TraceError: A file cannot be read or is no trace, or what is not labelled does not fit the schedule.
    """
    wanted = [] if schedule is None else wanted_unless_paired(schedule)
    reading = Reading(Labels(labels), "" if schedule is None else schedule.name, wanted)
    return load_readings(find_traces(paths), How(reading, mesh), progress=progress, jobs=jobs)


def recording_of(
    readings: Sequence[RankReading],
    source: str,
    schedule: Schedule | None = None,
    mesh: Mapping[str, int] | None = None,
    expected: Schedule | None = None,
) -> Recording:
    """What several ranks did, put together; their steps may be moved to a common clock.

    Args:
        readings: Of each rank.
        source: Where they are from, in words.
        schedule: What was run, as somebody says who wants it to be matched.
        mesh: Sizes of the job's dimensions.
        expected: What was run, as lies beside the traces; tells which steps are whole.

    Raises:
        TraceError: They do not go together, or not with the schedule.
    """
    by_global = by_global_rank(readings)
    world = _world_size(by_global)
    run, run_notes = _run_info(by_global)
    shared = readings[0] if len(readings) == 1 and readings[0].is_shared else None
    if shared is not None:
        replicas = 1 if run is None or len(shared.steps) % run.replicas else run.replicas
        shape = Shape(len(shared.steps) // replicas, replicas)
        steps, by_place = dict(shared.steps), dict.fromkeys(shared.steps, shared)
        global_rank = {place: place for place in steps}
        run_notes.append(SHARED)
    else:
        groups = {rank: of.group for rank, of in by_global.items() if of.group is not None}
        shape = shape_of(world, mesh, run, groups if len(groups) == len(by_global) else {}) or Shape(
            max(len(by_global), max(by_global) + 1)
        )
        global_rank = {shape.place(rank): rank for rank in by_global}
        by_place = {place: by_global[global_rank[place]] for place in sorted(global_rank)}
        steps = {place: of.steps[of.rank] for place, of in by_place.items()}
        if shape.told_by and shape.pipelines:
            run_notes.append(f"{shape.replicas} pipelines of {shape.ranks} ranks, as {shape.told_by} says")
    ranks, replicas = shape.ranks, shape.replicas
    if mesh is not None and run is not None and (run.ranks, run.replicas) != (ranks, replicas):
        run_notes.append(
            f"{shape.told_by} makes {replicas} pipelines of {ranks} ranks, but the run says of itself that it had "
            f"{run.replicas} of {run.ranks}"
        )
    _fits(schedule, ranks, steps)
    _one_pipeline(steps, ranks, copies=run is None)
    together = numbered_alike(steps)
    unattached = list(attach_loose(steps, ranks))
    clocks = clocks_of(by_place, steps, ranks)
    for place, by in clocks.offsets.items():
        shifted(steps[place], by)

    names = _step_names(steps)
    if expected is not None and run is not None and expected.microbatches != run.microbatches:
        expected = None  # it is of another run
    judged = judge(
        {name: _of_step(steps, name) for name in names},
        [place for place, of in steps.items() if not _is_silent(of)],
        ranks,
        schedule or expected,
    )
    partial, why = left_out(judged)
    unmatched = [*_absent(steps, names, partial), *([] if together is None else [together])]
    lost, of_partial = Lost(), Lost()
    timelines = tuple(
        assemble(
            ranks,
            _of_step(steps, name),
            replicas=replicas,
            apart=shared is None,
            common_clock=clocks.common,
            lost=of_partial if name in partial else lost,
        )
        for name in names
    )
    found = tuple(_found(place, global_rank[place], ranks, by_place[place].path, of) for place, of in steps.items())
    return Recording(
        source=source,
        ranks=ranks,
        steps=timelines,
        step_names=names,
        found=found,
        missing=(
            *why,
            *missing_lines(ranks * replicas, steps, [name for name in names if name not in partial], lost, unmatched),
        ),
        notes=(
            *(note for of in readings for note in of.notes),
            *run_notes,
            *clocks.notes,
            *unattached,
            *note_lines(steps, lost),
        ),
        run=run,
        common_clock=clocks.common,
        one_boot=clocks.one_boot,
        replicas=replicas,
        offsets={global_rank[place]: by for place, by in clocks.offsets.items()},
        recomputed=tuple(
            {
                (place // ranks, code): ns
                for place, step in _of_step(steps, name).items()
                for code, ns in step.recomputed.items()
            }
            for name in names
        ),
        tells_recompute=all(of.tells_recompute for of in steps.values()),
        left_out={name: str(judged[name]) for name in partial},
        steps_found=len(names),
    )


def _found(place: int, rank: int, ranks: int, file: Path, of: RankSteps) -> RankFound:
    return RankFound(
        rank,
        file,
        of.style,
        dict(sorted(of.counts.items())),
        of.transfers,
        place // ranks,
        place % ranks,
        of.match,
        of.kernels,
        device_sums(of),
        of.peak_memory,
    )


def _fits(schedule: Schedule | None, ranks: int, steps: Mapping[int, RankSteps]) -> None:
    if schedule is None or not any(map(_is_silent, steps.values())):
        return
    if ranks != schedule.ranks:
        raise TraceError(
            f"the schedule has {schedule.ranks} ranks, the recording {ranks}",
            "give the schedule that was run, with its -p",
        )
    wanted_of(schedule)  # says why nothing was matched


def wanted_unless_paired(schedule: Schedule) -> list[list[Wanted]]:
    """Each rank's list; empty where pairs overlap, which only labels can tell apart."""
    return wanted_of(schedule) if not (schedule.partner != NO_ACTION).any() else []


def by_global_rank(readings: Sequence[RankReading]) -> dict[int, RankReading]:
    """The readings by global rank.

    Raises:
        TraceError: Two are of one.
    """
    by_rank: dict[int, RankReading] = {}
    for reading in readings:
        other = by_rank.setdefault(reading.rank, reading)
        if other is not reading:
            raise TraceError(
                f"{reading.path} and {other.path} are both of rank {reading.rank}", "give the traces of one run"
            )
    return by_rank


def _world_size(by_rank: Mapping[int, RankReading]) -> int | None:
    """The world size that all traces that name one agree on."""
    sizes = {rank: of.world for rank, of in by_rank.items() if of.world is not None}
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


_HOW_THEY_STAND = "say how they stand, as --mesh dp=2,pp=4,tp=2, or give the traces of one pipeline's ranks"


def _one_pipeline(steps: Mapping[int, RankSteps], ranks: int, *, copies: bool) -> None:
    """Refuses ranks that make up no pipelines; whether their replicas are copies, where the run itself does not say."""
    holder: dict[tuple[int, int, int], int] = {}
    for rank, of in steps.items():
        for pipe, stage in stages_of(of):
            other = holder.setdefault((rank // ranks, pipe, stage), rank)
            if other != rank:
                of_pipe = f" of pipe {pipe}" if pipe else ""
                raise TraceError(
                    f"stage {stage}{of_pipe} was computed on rank {other} and on rank {rank}: "
                    "these are traces of several pipelines",
                    _HOW_THEY_STAND,
                )
    # What one replica computed another may lack, where it broke, but each lacking the other's is no copy.
    first: set[tuple[int, int]] = set()
    for replica in sorted({rank // ranks for rank in steps}) if copies else ():
        held = {(pipe, stage) for of, pipe, stage in holder if of == replica}
        if held - first and first - held:
            raise TraceError(
                f"replica {replica} computed stage {min(held - first)[1]} and not stage {min(first - held)[1]}, "
                "which another did: these are no copies of one pipeline",
                _HOW_THEY_STAND,
            )
        first = first or held


def _run_info(by_rank: Mapping[int, RankReading]) -> tuple[RunInfo | None, list[str]]:
    """What the ranks that say so were run with, and what is odd about that.

    Raises:
        TraceError: They were recorded in different runs.
    """
    infos: dict[int, RunInfo] = {}
    notes = []
    for rank, of in sorted(by_rank.items()):
        try:
            run = of.run
        except TraceError as error:
            notes.append(f"{printable(of.path.name)}: what was run is not known: {error.message}")
        else:
            infos |= {} if run is None else {rank: run}
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


def _step_names(steps: Mapping[int, RankSteps]) -> tuple[str, ...]:
    """The steps, in order."""
    names = {name for of in steps.values() if set(of.steps) != {WHOLE_TRACE} for name in of.steps}
    return tuple(sorted(names, key=_natural)) or (WHOLE_TRACE,)


def _absent(steps: Mapping[int, RankSteps], names: Sequence[str], partial: Sequence[str]) -> Iterator[str]:
    """The ranks that lack some of the steps that were not left out, a line each."""
    for rank, of in steps.items():
        absent = [name for name in names if name not in of.steps and name not in partial]
        if absent and not (set(of.steps) == {WHOLE_TRACE} and len(names) == 1):
            yield f"rank {rank} does not have {', '.join(absent[:5])}{' …' if len(absent) > 5 else ''}"


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


__all__ = ["RankFound", "Recording", "read_ranks", "read_recording", "recording_of"]
