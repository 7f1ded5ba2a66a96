"""What is in somebody's traces, for the terminal and as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipetrace.action import Kind, code_kind
from pipetrace.diff import median_step
from pipetrace.metrics import bubbles
from pipetrace.report.console import stdout_console
from pipetrace.report.units import TimeUnit, percent, size_unit_for, unit_for
from pipetrace.shown import printable
from pipetrace.timeline import UNKNOWN, Lane

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pipetrace.timeline import Timeline
    from pipetrace.trace.recording import RankFound
    from pipetrace.trace.torch_profiler import Recording

SCHEMA = 1
_KINDS = ("F", "B", "I", "W", "F&B")


def recording_summary(recording: Recording) -> dict[str, Any]:
    """What `read --json` prints; times in ns."""
    return {
        "schema": SCHEMA,
        "source": recording.source,
        "ranks": recording.ranks,
        "replicas": recording.replicas,
        "schedule": None if recording.run is None else recording.run.schedule,
        "common_clock": recording.common_clock,
        "found": [
            {
                "rank": found.rank,
                "replica": found.replica,
                "pipeline_rank": found.pipeline_rank,
                "file": printable(str(found.file)),
                "labels": str(found.labels.value),
                "counts": dict(found.counts),
                "transfers": found.transfers,
                "confidence": None if found.match is None else found.match.confidence,
                "kernels": found.kernels,
                "on_device": {
                    kind: {"kernels": of.kernels, "running_ns": of.running, "gaps_ns": of.gaps, "delay_ns": of.delay}
                    for kind, of in found.on_device.items()
                },
                "peak_memory_bytes": dict(found.peak_memory),
            }
            for found in recording.found
        ],
        "steps": [
            {
                "step": name,
                "replica": replica,
                "actions": int((step.is_compute & (step.replica == replica)).sum()),
                **_figures(recording, step.of_replica(replica), replica),
                **{
                    f"{what.lower()}_ns": times
                    for what, times in _beside(recording, index, step.of_replica(replica), replica).items()
                },
                **_all_to_alls(step.of_replica(replica)),
            }
            for index, (name, step) in enumerate(zip(recording.step_names, recording.steps, strict=True))
            for replica in range(recording.replicas)
        ],
        "not_found": list(recording.missing),
        "notes": list(recording.notes),
    }


@dataclass(frozen=True)
class _Recorded:
    """The bubbles of one replica's step over ranks whose compute was recorded; of others not even idleness is known.

    Args:
        ranks: Global ranks.
        span: From a rank's first to its last action.
        waited: Time that it stood idle until a receive was there.
        waited_in_transfer: The part of it for which that was under way.
        transfer: Time from both sides' being ready to arrival, over all its receives.
        untimed: Receives of which that is not known, as their sender was not recorded; in no sum of transfers.
        received: All receives.
    """

    ranks: list[int]
    makespan: int
    busy: list[int]
    global_idle: list[int]
    in_span_idle: list[int]
    span: list[int]
    waited: list[int]
    waited_in_transfer: list[int]
    transfer: list[int]
    untimed: list[int]
    received: list[int]

    @property
    def fraction(self) -> float:
        """Σ global idle / (recorded ranks × makespan)."""
        whole = len(self.ranks) * self.makespan
        return sum(self.global_idle) / whole if whole else 0.0


def _seen(recording: Recording, step: Timeline, replica: int) -> list[RankFound]:
    """Ranks of whose compute something was found: one without labels did not stand idle, it is not known."""
    computing = set(step.rank[step.is_compute].tolist())
    return [found for found in recording.found_of(replica) if found.pipeline_rank in computing]


def _recorded(recording: Recording, step: Timeline, replica: int) -> _Recorded:
    of, found = bubbles(step), _seen(recording, step, replica)
    columns = [[column[f.pipeline_rank] for f in found] for column in (of.busy, of.global_idle, of.in_span_idle)]
    receives = step.lane == Lane.RECV
    received, timed = step.where(receives), step.is_timed[receives]
    known = received.waited != UNKNOWN
    since = np.where(known, received.waited, received.end)
    times = (
        received.end - since,
        np.where(timed, received.end - np.maximum(since, received.start), 0),
        received.end - received.start,
        ~timed,
        np.ones(len(received), dtype=np.int64),
    )
    sums = [[int(time[received.rank == f.pipeline_rank].sum()) for f in found] for time in times]
    return _Recorded(
        [f.rank for f in found],
        of.makespan,
        busy=columns[0],
        global_idle=columns[1],
        in_span_idle=columns[2],
        span=[busy + idle for busy, idle in zip(columns[0], columns[2], strict=True)],
        **dict(zip(("waited", "waited_in_transfer", "transfer", "untimed", "received"), sums, strict=True)),
    )


def _unless_none(sums: list[int], of: _Recorded) -> list[int | None]:
    """Sums over receives; None for a rank of whose receives none was timed."""
    return [
        None if untimed and untimed == received else time
        for time, untimed, received in zip(sums, of.untimed, of.received, strict=True)
    ]


def _figures(recording: Recording, step: Timeline, replica: int) -> dict[str, Any]:
    """What can be said of a replica's step: across ranks only where they share a clock. Lists are over `of_ranks`."""
    of = _recorded(recording, step, replica)
    within = {
        "of_ranks": of.ranks,
        "span_ns": of.span,
        "busy_ns": of.busy,
        "in_span_idle_ns": of.in_span_idle,
        "waited_ns": of.waited,
    }
    if not recording.common_clock:
        return within
    return {
        "makespan_ns": of.makespan,
        "bubble_fraction": of.fraction,
        "global_idle_ns": of.global_idle,
        "transfer_ns": _unless_none(of.transfer, of),
        "waited_in_transfer_ns": _unless_none(of.waited_in_transfer, of),
        "transfers_not_known": of.untimed,
        **within,
    }


def _beside(recording: Recording, index: int, step: Timeline, replica: int) -> dict[str, list[int]]:
    """ns of forwards that were run again and of what closes a step, by name; lists over the recorded ranks."""
    again = recording.recomputed[index] if recording.recomputed else {}
    rank_of = dict(zip(step.code.tolist(), step.rank.tolist(), strict=True))
    found = [f.pipeline_rank for f in _seen(recording, step, replica)]
    by_rank = dict.fromkeys(found, 0)
    for (of, code), ns in again.items():
        if of == replica and code in rank_of:
            by_rank[rank_of[code]] += ns
    beside = {"recompute": [by_rank[rank] for rank in found]}
    for kind in (Kind.REDUCE_GRAD, Kind.OPTIM):
        tiles = step.where(code_kind(step.code) == kind)
        beside[kind.name] = [int((tiles.end - tiles.start)[tiles.rank == rank].sum()) for rank in found]
    return {what: times for what, times in beside.items() if any(times)}


def _all_to_alls(step: Timeline) -> dict[str, Any]:
    from pipetrace.report.overlap import overlap_dict

    found = overlap_dict(step)
    return {"moe": found} if found else {}


def print_recording(recording: Recording, *, console: Console | None = None) -> None:
    """Prints what was read.

    Args:
        recording: The traces.
        console: Where to; standard output when None.
    """
    console = console or stdout_console()
    for index, part in enumerate(_parts(recording)):
        if index:
            console.print()
        console.print(part, highlight=False)


def _parts(recording: Recording) -> list[RenderableType]:
    from rich.text import Text

    from pipetrace.report.layout import named_values, table_of
    from pipetrace.report.overlap import overlap_tables

    replica = min((found.replica for found in recording.found), default=0)
    steps = [step.of_replica(replica) for step in recording.steps]
    measured = [step for step in steps if step.is_compute.any()]
    recorded = f"{len(recording.found)} recorded of {recording.ranks * recording.replicas}"
    if recording.replicas > 1:
        recorded += f", {recording.replicas} replicas of {recording.ranks}; times are of replica {replica}"
    head = [("traces", recording.source), ("ranks", recorded)]
    if recording.run is not None:
        run = recording.run
        head.append(("run", f"{run.schedule}, m = {run.microbatches}, workload {run.workload}"))
    parts: list[RenderableType] = []
    tables: list[RenderableType] = []
    kinds = [kind for kind in _KINDS if any(kind in found.counts for found in recording.found)]
    tables.append(
        table_of(
            ["rank", "labels", *kinds, "sends + receives"],
            [
                [
                    str(found.rank),
                    str(found.labels.value),
                    *(f"{found.counts.get(kind, 0):,}" for kind in kinds),
                    f"{found.transfers:,}",
                ]
                for found in recording.found
            ],
            f"actions found, over {_steps(recording)}",
        )
    )
    if measured:
        chosen = measured[median_step(measured)]
        steps_index = next(i for i, step in enumerate(steps) if step is chosen)
        name = recording.step_names[steps_index]
        of = _recorded(recording, chosen, replica)
        unit = unit_for(of.makespan if recording.common_clock else max(of.busy))
        if recording.common_clock:
            spread = (
                f"{unit.number(min(s.makespan for s in measured))} ... {unit.text(max(s.makespan for s in measured))}"
            )
            head += [
                ("makespan", f"{unit.text(of.makespan)}" + (f"  ({spread})" if len(measured) > 1 else "")),
                ("bubble fraction", f"{percent(of.fraction)}  ({_definition(len(of.ranks), recording.ranks)})"),
            ]
        head.append(
            (
                "window",
                f"first to last F, B, I or W of {name}"
                + (f", the median of {len(measured)} steps" if len(measured) > 1 else ""),
            )
        )
        columns = [
            ("own span", of.span),
            ("busy", of.busy),
            ("in-span idle", of.in_span_idle),
            ("waits for receives", of.waited),
        ]
        if recording.common_clock:
            columns.insert(2, ("global idle", of.global_idle))
            columns.append(("of it in transfer", of.waited_in_transfer))
        cells = [[str(rank) for rank in of.ranks], *(unit.column(column) for _, column in columns)]
        caption = f"times in {unit.name}; waits count from a rank's first receive on, before its first action too"
        if recording.common_clock:
            cells[-1] = _with_unknown(cells[-1], of)
            caption += _what_is_unknown(cells[-1])
        tables.append(table_of(["rank", *(title for title, _ in columns)], list(zip(*cells, strict=True)), caption))
        if beside := _beside(recording, steps_index, chosen, replica):
            cells = [[str(rank) for rank in of.ranks], *(unit.column(times) for times in beside.values())]
            caption = f"times in {unit.name}, in that step" + (
                "; recompute is a forward run again in a backward, and part of busy" if "recompute" in beside else ""
            )
            tables.append(table_of(["rank", *beside], list(zip(*cells, strict=True)), caption))
        tables += _device_tables(recording, unit)
        tables += overlap_tables(chosen, unit)
    parts += [named_values(head), *tables]
    if recording.missing:
        parts.append(Text("\n".join(f"not found: {line}" for line in recording.missing), "yellow"))
    if recording.notes:
        parts.append(Text("\n".join(f"note: {line}" for line in recording.notes)))
    return parts


def _with_unknown(cells: list[str], of: _Recorded) -> list[str]:
    known = _unless_none(of.waited_in_transfer, of)
    return [
        "not known" if time is None else f"{cell} + ?" if untimed else cell
        for cell, time, untimed in zip(cells, known, of.untimed, strict=True)
    ]


def _what_is_unknown(cells: list[str]) -> str:
    if any("?" in cell for cell in cells):
        return "; ? stands for receives whose sender was not recorded"
    return "; not known where no sender was recorded" if "not known" in cells else ""


def _device_tables(recording: Recording, unit: TimeUnit) -> list[RenderableType]:
    """What GPU kernels did, and the peak of memory, where either was recorded."""
    from pipetrace.report.layout import table_of

    tables: list[RenderableType] = []
    rows = [
        [f"{found.rank} {kind}", f"{of.kernels:,}", *map(unit.number, (of.running, of.gaps, of.delay))]
        for found in recording.found
        for kind, of in found.on_device.items()
    ]
    if rows:
        head = ["rank", "kernels", "running", "gaps", "launch to start"]
        caption = f"what the kernels of all actions of a kind did, over {_steps(recording)}, in {unit.name}"
        tables.append(table_of(head, rows, caption))
    peaks = [(found.rank, device, peak) for found in recording.found for device, peak in found.peak_memory.items()]
    if peaks:
        size = size_unit_for(max(peak for _, _, peak in peaks), "bytes")
        texts = size.column([peak for _, _, peak in peaks])
        rows = [[f"{rank} {device}", text] for (rank, device, _), text in zip(peaks, texts, strict=True)]
        tables.append(table_of(["rank", "peak"], rows, f"most memory allocated over the whole trace, in {size.name}"))
    return tables


def _definition(recorded: int, ranks: int) -> str:
    if recorded == ranks:
        return "Σ global idle / (p × makespan)"
    return f"of the {recorded} recorded of {ranks} ranks: Σ global idle / ({recorded} × makespan)"


def _steps(recording: Recording) -> str:
    """The steps that were found, whole or not, measured or not."""
    count = max(recording.steps_found, len(recording.steps))
    return "1 step" if count == 1 else f"{count} steps"
