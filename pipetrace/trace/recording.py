"""What was read of a run, and the choice of a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pipetrace.errors import TraceError
from pipetrace.shown import shown
from pipetrace.timeline import Timeline
from pipetrace.trace.labels import LabelStyle
from pipetrace.trace.reading.device import OnDevice
from pipetrace.trace.reading.model import Match
from pipetrace.trace.run_folder import RunInfo

SLOWEST = "slowest"
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class RankFound:
    """What was found on one rank.

    Args:
        rank: Global rank.
        file: Its trace.
        labels: How its trace is labelled.
        counts: Labels by kind ("F", "SEND_F", …; "F&B" for pairs, "WAIT RECV_F" for waits), over all steps.
        transfers: Sends and receives, labelled or not, over all steps.
        replica, pipeline_rank: Where it stands.
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
    replica: int = 0
    pipeline_rank: int = 0
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
        one_boot: Whether all ranks are known to have read the clock of one machine, which cannot differ from itself.
        replicas: Copies of the pipeline.
        offsets: ns that were added to the times of a global rank, so that all are on one clock.
        recomputed: Of each step, ns that the forwards took that were run again in a backward, by (replica, code).
        tells_recompute: Whether every rank's trace would show them.
        left_out: Names of steps that are not to be measured, as they are not whole, and what each lacks.
        steps_found: Steps that were found, those included that are not in `steps`; what `found` counts is over these.
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
    one_boot: bool = False
    replicas: int = 1
    offsets: Mapping[int, int] = field(default_factory=dict)
    recomputed: tuple[Mapping[tuple[int, int], int], ...] = ()
    tells_recompute: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    steps_found: int = 0

    def found_of(self, replica: int) -> tuple[RankFound, ...]:
        """What was found on the ranks of one replica."""
        return tuple(found for found in self.found if found.replica == replica)


def choose(recording: Recording, steps: Sequence[str] = (), replica: str | None = None) -> Recording:
    """A part of a recording.

    Args:
        recording: All of it.
        steps: Names of steps, or their numbers; all that are whole where empty.
        replica: A replica's number, or "slowest", which is the one of the longest median makespan; all where None.

    Raises:
        TraceError: There is no such step or replica.
    """
    if steps:
        rows = sorted({_step_called(recording.step_names, text) for text in steps})
        partial = [name for row in rows if (name := recording.step_names[row]) in recording.left_out]
        recording = _of_steps(recording, rows)
        notes = tuple(f"{name} is not whole: it {recording.left_out[name]}" for name in partial)
        recording = replace(recording, missing=(*notes, *recording.missing))
    elif recording.left_out:
        kept = [row for row, name in enumerate(recording.step_names) if name not in recording.left_out]
        recording = _of_steps(recording, kept)
    return recording if replica is None else _of_replica(recording, replica)


def _of_steps(recording: Recording, rows: Sequence[int]) -> Recording:
    return replace(
        recording,
        steps=tuple(recording.steps[row] for row in rows),
        step_names=tuple(recording.step_names[row] for row in rows),
        recomputed=tuple(recording.recomputed[row] for row in rows) if recording.recomputed else (),
    )


def _step_called(names: Sequence[str], text: str) -> int:
    for row, name in enumerate(names):
        if name == text or (text.isdecimal() and name.endswith((f"#{text}", f" {text}"))):
            return row
    some = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    raise TraceError(f"no step is called {shown(text)}", f"the steps are {some}")


def replica_makespans(recording: Recording) -> list[int]:
    """ns of each replica's median step; 0 where there is no step."""
    steps = recording.steps
    return [
        round(float(np.median([step.of_replica(replica).makespan for step in steps]))) if steps else 0
        for replica in range(recording.replicas)
    ]


def _of_replica(recording: Recording, text: str) -> Recording:
    medians = replica_makespans(recording)
    if text == SLOWEST:
        chosen = int(np.argmax(medians))
    elif text.isdecimal() and int(text) < recording.replicas:
        chosen = int(text)
    else:
        raise TraceError(
            f"there is no replica {shown(text)}",
            f"give 0 to {recording.replicas - 1}, or {SLOWEST}: the traces have {recording.replicas}",
        )
    note = f"of {recording.replicas} replicas, this is {chosen}"
    if text == SLOWEST and recording.replicas > 1:
        slow, fast = medians[chosen] / 1e6, min(medians) / 1e6
        note += f": its median step takes {slow:,.3f} ms, that of the fastest {fast:,.3f} ms"
    return replace(
        recording,
        steps=tuple(replace(step.of_replica(chosen), replicas=1) for step in recording.steps),
        recomputed=tuple(
            {(0, code): ns for (replica, code), ns in of.items() if replica == chosen} for of in recording.recomputed
        ),
        found=tuple(replace(found, replica=0) for found in recording.found_of(chosen)),
        notes=(*recording.notes, note) if recording.replicas > 1 else recording.notes,
        replicas=1,
    )
