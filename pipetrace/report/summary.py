"""The figures of a schedule as plain values, for `--json` and for tables."""

from __future__ import annotations

from typing import Any

from pipetrace.costs import Costs
from pipetrace.costs_io import costs_to_dict
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

SCHEMA = 1


def schedule_summary(schedule: Schedule, timeline: Timeline, costs: Costs) -> dict[str, Any]:
    """One entry of the `schedules` list; times in ns, lists with one entry a rank, peaks in chunks."""
    idle, peak = bubbles(timeline), peak_in_flight(schedule)
    return {
        "schedule": schedule.name,
        "ranks": schedule.ranks,
        "microbatches": schedule.microbatches,
        "stages": schedule.stages,
        "makespan_ns": idle.makespan,
        "busy_ns": list(idle.busy),
        "global_idle_ns": list(idle.global_idle),
        "in_span_idle_ns": list(idle.in_span_idle),
        "bubble_fraction": idle.fraction,
        "peak_in_flight": {
            "release_at_input_grad": list(peak.release_at_input_grad),
            "release_at_weight_grad": list(peak.release_at_weight_grad),
        },
        "costs": costs_to_dict(costs),
    }


def schedules_json(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` of gen and show prints."""
    return {"schema": SCHEMA, "schedules": summaries}
