from __future__ import annotations

from pipetrace.costs import Costs, StageCosts
from pipetrace.report.reordering import list_order_makespan, reordering_line
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.waiting import Wait, Waiting

DATAFLOW = Waiting(Wait.DATAFLOW)
MS = 1_000_000


def line(costs: Costs, waiting: Waiting = DATAFLOW) -> str | None:
    schedule = build("zb-h1", 2, 3)
    return reordering_line(schedule, costs, waiting, simulate(schedule, costs, waiting))


def test_it_says_when_going_out_of_order_is_slower() -> None:
    slower = Costs(stages={0: StageCosts(2 * MS, 3 * MS, 8 * MS), 1: StageCosts(9 * MS, MS, 6 * MS)}, p2p=2 * MS)
    assert line(slower) == "out of order 59 ms, in list order 54 ms: 5 ms slower"


def test_the_same_and_faster() -> None:
    faster = Costs(StageCosts(2 * MS, MS, 2 * MS), stages={0: StageCosts(10 * MS, MS, MS)})
    assert line(faster) == "out of order 37 ms, in list order 39 ms: 2 ms faster"
    assert line(Costs(StageCosts(MS, MS, 0))) == "out of order 8 ms, in list order 8 ms: the same"


def test_one_order_has_nothing_to_compare() -> None:
    assert line(Costs(), Waiting()) is None
    assert list_order_makespan(build("zb-h1", 2, 3), Costs(), Waiting(Wait.DATAFLOW, reorder=False)) is None
