"""One rank's trace, reduced to what it did: some kilobytes that travel between processes and machines.

A trace is read where it lies; what is left of it is enough for `read`, `fit` and `diff`, with all ranks or some.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pipetrace.errors import TraceError
from pipetrace.shown import printable
from pipetrace.trace.load import TraceFile, load_file
from pipetrace.trace.places import Shape, number, pipeline_group, rank_of, shape_of
from pipetrace.trace.rank_steps import Reading, read_steps
from pipetrace.trace.reading.model import RankSteps
from pipetrace.trace.reading.source import Progress
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.shared_device import is_shared, shared_steps

_RANK_OF_PROCESS = re.compile(r"\brank[ _:\-]{0,3}(\d{1,6})", re.IGNORECASE)


@dataclass(frozen=True)
class How:
    """How traces are read.

    Args:
        reading: How labels are read, and the order of what was run where that is known.
        mesh: Sizes of the job's dimensions, as torch's DeviceMesh counts.
    """

    reading: Reading = field(default_factory=Reading)
    mesh: Mapping[str, int] | None = None


@dataclass(frozen=True)
class RankReading:
    """What is left of a trace.

    Args:
        path: Where it lies or lay.
        rank: Global rank.
        world: World size, None where the trace does not say it.
        group: Global ranks of its pipeline, where process groups say them.
        host: Name of the machine, empty where it is not said.
        pipetrace: What pipetrace's own runs add.
        notes: What was mended or lost, a line each.
        steps: What the rank did; of all ranks, by pipeline rank, where they ran in one process.
        is_shared: Whether they did.
    """

    path: Path
    rank: int
    world: int | None
    group: tuple[int, ...] | None
    host: str
    pipetrace: dict[str, Any]
    notes: tuple[str, ...]
    steps: dict[int, RankSteps]
    is_shared: bool = False

    @property
    def run(self) -> RunInfo | None:
        """What pipetrace's own runs say of themselves; None where that cannot be understood.

        Raises:
            TraceError: It is there, but cannot be understood.
        """
        table = self.pipetrace.get("run")
        return RunInfo.from_dict(table) if isinstance(table, dict) else None


def read_file(path: Path, how: How, progress: Progress | None = None) -> list[RankReading]:
    """What the ranks of a file did; empty where pipetrace drew it, so that nothing was recorded.

    Raises:
        TraceError: It cannot be read, or is no trace.
    """
    traces = load_file(path, progress)
    if any(trace.drawn for trace in traces):
        return []
    return [_reduced(part, named, how) for trace in traces for part, named in _by_process(trace)]


def _reduced(trace: TraceFile, named: int | None, how: How) -> RankReading:
    rank = rank_of(trace.path, trace.distributed, trace.pipetrace, named)
    reading = RankReading(
        trace.path,
        rank,
        number(trace.distributed.get("world_size")) or None,
        pipeline_group(trace.distributed),
        trace.host,
        trace.pipetrace,
        trace.notes,
        {},
    )
    if is_shared(trace):
        return replace(reading, steps=shared_steps(trace, how.reading.labels), is_shared=True)
    return replace(reading, steps={rank: read_steps(trace, *_seen_alone(reading, how))})


def _seen_alone(reading: RankReading, how: How) -> tuple[int, Reading]:
    """The pipeline rank of a trace by what it says itself, and how to read it."""
    try:
        run = reading.run
    except TraceError:
        run = None  # told when all traces are looked at together
    said_more_clearly = how.mesh is not None or (run is not None and run.replicas > 1)
    shape = None if said_more_clearly else _own_group(reading)
    shape = shape or shape_of(reading.world, how.mesh, run, {})
    if shape is None:
        return reading.rank, how.reading
    if how.reading.wanted and len(how.reading.wanted) != shape.ranks:
        # Nothing is matched; it is told when all traces are looked at together.
        return shape.place(reading.rank) % shape.ranks, replace(how.reading, wanted=())
    return shape.place(reading.rank) % shape.ranks, how.reading


def _own_group(reading: RankReading) -> Shape | None:
    group = reading.group
    return None if group is None or len(group) < 2 else Shape(len(group), 1, (group,), "its process group")


def _by_process(trace: TraceFile) -> Iterator[tuple[TraceFile, int | None]]:
    """The parts of a merged trace, whose processes are called after ranks, with their ranks; or the trace as it is."""
    events = trace.events
    rank_of_process: dict[str, int] = {}
    for pid, _ in events.threads:
        if match := _RANK_OF_PROCESS.search(f"{events.process_names.get(pid, '')} {pid}"):
            rank_of_process[pid] = int(match[1])
    ranks = sorted(set(rank_of_process.values()))
    if len(ranks) < 2:
        yield trace, None
        return
    unnamed = int(events.on_threads([pid not in rank_of_process for pid, _ in events.threads]).sum())
    for rank in ranks:
        mine = events.on_threads([rank_of_process.get(pid) == rank for pid, _ in events.threads])
        notes = [*trace.notes]
        if rank == ranks[0]:
            name = printable(trace.path.name)
            notes.append(f"{name}: the traces of {len(ranks)} ranks are merged in it, told apart by their processes")
            if unnamed:
                notes.append(f"{name}: {unnamed} events of processes that name no rank were left out")
        else:
            notes = []
        # The merged file's own rank is that of one of them, if it names any.
        distributed = {key: value for key, value in trace.distributed.items() if key != "rank"}
        yield replace(trace, events=events.where(mine), distributed=distributed, notes=tuple(notes)), rank


def read_files(
    files: Sequence[Path], how: How, *, progress: Progress | None = None, jobs: int = 1
) -> list[list[RankReading]]:
    """What the ranks of several files did, file by file.

    Args:
        files: What to read.
        how: How.
        progress: Is told of every piece that was read; of whole files where several processes read.
        jobs: Processes that read at once. More than one are started anew, so that a script that asks for them must
            keep what it does itself behind `if __name__ == "__main__"`.

    Raises:
        TraceError: One cannot be read, or a process was ended by somebody else.
    """
    if jobs <= 1 or len(files) < 2:
        return [read_file(file, how, progress) for file in files]
    found: dict[Path, list[RankReading]] = {}
    pool = ProcessPoolExecutor(
        min(jobs, len(files)), mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
    )
    try:
        waiting = {pool.submit(read_file, file, how): file for file in files}
        for done in as_completed(waiting):
            found[waiting[done]] = done.result()
            if progress is not None:
                progress(waiting[done].stat().st_size)
    except BrokenProcessPool:
        raise TraceError(
            "a process that read traces was ended from outside, perhaps for want of memory", "read with --jobs 1"
        ) from None
    except BaseException:
        # Nobody waits for what the others are still reading; at its end Python would.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [found[file] for file in files]


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def jobs_for(files: Iterable[Path]) -> int:
    """As many processes as have something to do: one, where all files together are small."""
    sizes = [file.stat().st_size for file in files if file.is_file()]
    if sum(sizes) < _WORTH_PROCESSES:
        return 1
    return max(1, min(len(sizes), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1))


_WORTH_PROCESSES = 32 << 20
"""Bytes from which on starting processes pays; compressed traces are some ten times as large."""
