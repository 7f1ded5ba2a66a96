"""The figures of a schedule as plain values, for `--json` and for tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipetrace.action import Kind
from pipetrace.costs import Costs
from pipetrace.costs_io import costs_to_dict
from pipetrace.metrics import (
    ALL_FREED_AT,
    MemorySizes,
    bindings,
    bubbles,
    memory_over_time,
    path_of,
    peak_in_flight_of,
    phases,
    sizes_to_dict,
    sums_of,
)
from pipetrace.report.overlap import InParts, overlap_dict
from pipetrace.report.reordering import list_order_makespan
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting

SCHEMA = 1


def schedule_summary(
    schedule: Schedule,
    timeline: Timeline,
    costs: Costs,
    *,
    sizes: MemorySizes | None = None,
    causes: bool = True,
    waiting: Waiting | None = None,
    parts: InParts | None = None,
) -> dict[str, Any]:
    """One entry of the `schedules` list; times in ns, lists with one entry a rank, peaks in chunks.

    Args:
        schedule: The order.
        timeline: Its ideal.
        costs: What it was simulated with.
        sizes: How large things are, for `memory`; one chunk an activation, freed at W, when None.
        waiting: How it was simulated to wait; where that may leave the list order, `list_order_makespan_ns` is added.
        parts: How it came to be in parts of MoE layers, if it is.
        causes: Whether to say what idle time waited for and which path is critical: an entry for each step of it.
    """
    idle, peak = bubbles(timeline), peak_in_flight_of(timeline)
    out = {
        "schedule": schedule.name,
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "stages": schedule.stages,
        "makespan_ns": idle.makespan,
        "busy_ns": list(idle.busy),
        "global_idle_ns": list(idle.global_idle),
        "in_span_idle_ns": list(idle.in_span_idle),
        "bubble_fraction": idle.fraction,
        "phases": _phases(timeline),
        "peak_in_flight": {
            "release_at_input_grad": list(peak.release_at_input_grad),
            "release_at_weight_grad": list(peak.release_at_weight_grad),
        },
        "memory": _memory(timeline, sizes),
    }
    if waiting is not None and (in_order := list_order_makespan(schedule, costs, waiting)) is not None:
        out["list_order_makespan_ns"] = in_order
    if moe := overlap_dict(timeline, parts):
        out["moe"] = moe
    if causes:
        of = bindings(schedule, timeline, costs)
        out["idle_by_cause"] = {f"{cause.name.lower()}_ns": list(column) for cause, column in sums_of(of).items()}
        out["critical_path"] = [
            {
                "action": str(step.action),
                "rank": step.rank,
                "transfer": step.transfer,
                "start_ns": step.start,
                "end_ns": step.end,
                "reason": step.reason.name.lower(),
                "cause": step.cause,
            }
            for step in path_of(of)
        ]
    return out | {"costs": costs_to_dict(costs)}


def _phases(timeline: Timeline) -> dict[str, Any]:
    of, zero = phases(timeline), timeline.span[0]
    return {
        "steady_start_ns": [time - zero for time in of.steady_start],
        "drain_start_ns": [time - zero for time in of.drain_start],
        "global_idle_ns": {name: list(column) for name, column in asdict(of.global_idle).items()},
        "in_span_idle_ns": {name: list(column) for name, column in asdict(of.in_span_idle).items()},
    }


def _memory(timeline: Timeline, sizes: MemorySizes | None) -> dict[str, Any]:
    held = memory_over_time(timeline, sizes)
    at_input, at_weight = (memory_over_time(timeline, ALL_FREED_AT[kind]) for kind in (Kind.I, Kind.W))
    out: dict[str, Any] = {
        "unit": held.unit,
        "parameters": list(held.parameters),
        "mean": list(held.mean),
        "peak": list(held.peak),
        "mean_in_flight": {
            "release_at_input_grad": list(at_input.mean),
            "release_at_weight_grad": list(at_weight.mean),
        },
    }
    return out | ({"sizes": sizes_to_dict(sizes)} if sizes is not None else {})


def schedules_json(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` of gen and show prints."""
    return {"schema": SCHEMA, "schedules": summaries}
