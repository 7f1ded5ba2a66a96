from __future__ import annotations

from hypothesis import given

from pipetrace.action import Kind
from pipetrace.costs import Costs
from pipetrace.costs_io import parse_costs
from pipetrace.metrics import in_flight, peak_in_flight, peak_in_flight_of
from pipetrace.passes import add_communication
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, costs, sizes, within
from tests.test_schedule import of


def test_in_flight_by_what_frees() -> None:
    schedule = of("0F0 0F1 0I0 0F2 0W0 0B1 0I2 0W2", microbatches=3)
    assert in_flight(schedule, 0, Kind.I).tolist() == [1, 2, 2, 2, 2, 2, 1, 0]
    assert in_flight(schedule, 0, Kind.W).tolist() == [1, 2, 2, 3, 3, 2, 1, 1]
    assert peak_in_flight(schedule).release_at_weight_grad == (3,)


def test_a_pair_takes_before_it_frees() -> None:
    schedule = of("0F0 (0F1;0B0)OVERLAP_F_B 0B1", microbatches=2)
    assert in_flight(schedule, 0, Kind.W).tolist() == [1, 2, 1]


@given(sizes(ranks=4, microbatches=8))
def test_sends_and_receives_hold_nothing_and_take_no_time(size: Sizes) -> None:
    schedule = size.build()
    listed = add_communication(schedule)
    assert peak_in_flight(listed) == peak_in_flight(schedule)
    for rank in range(schedule.ranks):
        assert in_flight(listed, rank, Kind.W).tolist() == in_flight(schedule, rank, Kind.W).tolist()
    ideal = simulate(listed)
    assert len(ideal) == len(schedule)
    assert ideal.makespan == simulate(schedule).makespan


@given(sizes(ranks=4, microbatches=8), costs(16))
def test_a_timeline_in_list_order_has_the_peaks_of_the_list(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    assert peak_in_flight_of(simulate(schedule, given)) == peak_in_flight(schedule)


def test_a_timeline_out_of_order_has_its_own_peaks() -> None:
    schedule = build("zb-h1", 8, 32)
    timeline = simulate(schedule, parse_costs("F=10,I=12,W=8", p2p=500_000), Waiting(Wait.DATAFLOW))
    peaks = peak_in_flight_of(timeline)
    assert peaks.release_at_input_grad != peak_in_flight(schedule).release_at_input_grad
    assert max(peaks.release_at_weight_grad) <= 8
