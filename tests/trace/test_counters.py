"""Memory in flight, idle ranks and drift over time."""

from __future__ import annotations

import numpy as np
import pytest

import pipetrace
from pipetrace.action import Kind
from pipetrace.metrics import all_to_alls, bubbles, peak_in_flight
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.timeline import Timeline
from pipetrace.trace.counters import drift_series, exposed_series, idle_series, in_flight_series


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_peaks_equal_the_metrics(name: str) -> None:
    schedule = pipetrace.build(name, 4, 6)
    timeline = pipetrace.simulate(schedule, pipetrace.parse_costs("F=1,I=1.5,W=0.7", p2p=300_000))
    peak = peak_in_flight(schedule)
    for release, expected in ((Kind.I, peak.release_at_input_grad), (Kind.W, peak.release_at_weight_grad)):
        for rank, series in enumerate(in_flight_series(timeline, release)):
            assert series.value.max() == expected[rank]
            assert series.value[-1] == 0
            assert (np.diff(series.time) > 0).all()


def test_a_pair_takes_one_and_frees_one() -> None:
    action = pipetrace.Action
    tiles = [
        pipetrace.Tile(action(Kind.F, 0, 0), 0, pipetrace.Lane.COMPUTE, 0, 2),
        pipetrace.Tile(pipetrace.Pair(action(Kind.F, 0, 1), action(Kind.B, 0, 0)), 0, pipetrace.Lane.COMPUTE, 2, 6),
        pipetrace.Tile(action(Kind.B, 0, 1), 0, pipetrace.Lane.COMPUTE, 6, 8),
    ]
    timeline = Timeline.from_tiles(1, tiles)
    (series,) = in_flight_series(timeline, Kind.W)
    assert list(zip(series.time.tolist(), series.value.tolist(), strict=True)) == [(0, 1), (2, 2), (6, 1), (8, 0)]
    # Begun in the middle: what was taken before is not known, and nothing counts below zero.
    late = timeline.where(timeline.start >= 2)
    assert in_flight_series(late, Kind.W)[0].value.min() == 0


def test_idle_time_equals_the_bubbles() -> None:
    timeline = pipetrace.simulate(pipetrace.build("1f1b", 4, 6), pipetrace.parse_costs("F=1,B=2", p2p=250_000))
    series = idle_series(timeline)
    area = int((np.diff(series.time) * series.value[:-1]).sum())
    assert area == sum(bubbles(timeline).global_idle)
    assert series.value[-1] == 0
    assert series.value.min() >= 0


def test_exposed_all_to_alls() -> None:
    schedule = expand_moe(pipetrace.build("dualpipev", 2, 4), Overlap(MoeOrder.ALIGNED))
    timeline = pipetrace.simulate(schedule)
    exposed = all_to_alls(timeline).per_rank(all_to_alls(timeline).exposed)
    for series, expected in zip(exposed_series(timeline), exposed, strict=True):
        assert set(series.value.tolist()) == {0, 1}
        assert int((np.diff(series.time) * series.value[:-1]).sum()) == expected


def test_nothing_makes_empty_series() -> None:
    empty = Timeline.from_tiles(2, [])
    assert idle_series(empty).time.size == 0
    assert in_flight_series(empty, Kind.I)[0].time.size == 0
    none = np.zeros(0, dtype=np.int64)
    assert drift_series(none, none).time.size == 0


def test_drift_has_one_value_a_time() -> None:
    series = drift_series(np.array([9, 4, 9]), np.array([5, 4, 8]))
    assert (series.time.tolist(), series.value.tolist()) == ([4, 9], [0, 1])
