"""Every schedule against reference implementations: order, times, bubbles, memory."""

from __future__ import annotations

import pytest

from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import names
from pipetrace.simulate import simulate
from tests.golden import GOLDEN, SCALE, built, costs_of, name_of, order

KEYS = [key for key in GOLDEN if name_of(key) in names()]


@pytest.mark.parametrize("key", [key for key in KEYS if "ranks" in GOLDEN[key]])
def test_order(key: str) -> None:
    schedule = built(key)
    for rank in range(schedule.ranks):
        assert list(schedule.actions(rank)) == order(key, rank), f"rank {rank}"


@pytest.mark.parametrize("key", KEYS)
def test_values(key: str) -> None:
    schedule, golden = built(key), GOLDEN[key]
    peak = peak_in_flight(schedule)
    assert list(peak.release_at_input_grad) == golden["peak_in_flight"]["release_at_input_grad"]
    assert list(peak.release_at_weight_grad) == golden["peak_in_flight"]["release_at_weight_grad"]
    for costs_key, values in golden["values"].items():
        idle = bubbles(simulate(schedule, costs_of(costs_key)))
        assert idle.makespan == values["makespan"] * SCALE, costs_key
        if "ranks" in golden:
            assert list(idle.global_idle) == [round(ns * SCALE) for ns in values["idle"]], costs_key
            assert list(idle.in_span_idle) == [round(ns * SCALE) for ns in values["bubble_in_span"]], costs_key


def test_every_schedule_has_a_golden_one() -> None:
    assert {name_of(key) for key in KEYS} == set(names())
