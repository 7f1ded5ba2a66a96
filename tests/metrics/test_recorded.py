"""The metrics of real recordings: gloo ranks on a CPU, waiting and host gaps included."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipetrace.metrics import Cause, Reason, bubbles, critical_path, gaps, memory_over_time, peak_in_flight, phases
from pipetrace.trace.torch_csv import read_csv
from pipetrace.trace.torch_profiler import read_recording

TRACES = Path(__file__).parent.parent / "data" / "traces"


@pytest.mark.parametrize("name", ["rt-zbh1_pp4_mb8_mlp", "zbv_pp2_mb4_mlp"])
def test_every_ns_of_a_recording_is_accounted_for(name: str) -> None:
    schedule = read_csv(TRACES / name / "compute_only.csv").schedule
    timelines = read_recording(sorted((TRACES / name).glob("*.gz"))).steps
    assert timelines
    for timeline in timelines:
        path = critical_path(schedule, timeline)
        assert sum(step.duration + step.delay for step in path) == timeline.makespan
        assert all(step.delay >= 0 and step.duration >= 0 for step in path)
        # It leads all the way to the first action of the step.
        assert path[0].reason is Reason.FIRST
        assert path[0].start == timeline.span[0]
        assert len({step.rank for step in path}) == timeline.ranks

        idle = bubbles(timeline)
        found = gaps(schedule, timeline)
        assert sum(gap.duration for gap in found) == sum(idle.global_idle)
        assert {gap.cause for gap in found} >= {Cause.GRADIENT, Cause.TRANSFER, Cause.HOST}
        parts = phases(timeline).global_idle
        assert tuple(map(sum, zip(parts.warm_up, parts.steady, parts.drain, strict=True))) == idle.global_idle
        # It ran in the order of the list, so it held what the order says.
        assert memory_over_time(timeline).peak == peak_in_flight(schedule).release_at_weight_grad
