from __future__ import annotations

import numpy as np
from hypothesis import given

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff.match import diff
from pipetrace.diff.observe import observe
from pipetrace.diff.slip import NO_PREDECESSOR, Slips, slips
from pipetrace.diff.work import Work
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting
from tests.diff.cases import two_costs, waitings

MS = 1_000_000


def slipped(schedule: Schedule, costs: Costs, measured: Timeline) -> tuple[Work, Slips]:
    of = diff(simulate(schedule, costs), measured)
    work = Work.of(schedule, [of.measured])
    base = work.at(costs)
    return work, slips(work, base, work.graph, observe(work, of.measured, base))


@given(two_costs(), waitings())
def test_the_parts_sum_for_every_action(case: tuple[Schedule, Costs, Costs], waiting: Waiting) -> None:
    schedule, one, other = case
    work, of = slipped(schedule, one, simulate(schedule, other, waiting))
    assert of.row.size == len(schedule)
    assert np.array_equal(of.slip, of.growth + of.predecessor_slip + of.transfer + of.gap - of.slack)
    has = of.predecessor != NO_PREDECESSOR
    assert np.array_equal(of.predecessor_slip[has], of.slip[of.predecessor[has]])
    assert not of.predecessor_slip[~has].any()
    assert (of.gap >= 0).all()
    for row in (0, len(schedule) - 1):
        assert sum(of.because(work, row).values()) == of.slip[row]


@given(two_costs())
def test_a_step_does_not_slip_against_itself(case: tuple[Schedule, Costs, Costs]) -> None:
    schedule, costs, _ = case
    _, of = slipped(schedule, costs, simulate(schedule, costs))
    for name in ("slip", "growth", "predecessor_slip", "transfer", "gap"):
        assert not getattr(of, name).any(), name


def test_the_trail_leads_to_the_slow_rank() -> None:
    schedule = build("1f1b", 4, 8)
    slow = Costs(stages={2: StageCosts(F=MS, I=MS, W=2 * MS)})
    measured = simulate(schedule, slow)
    work, of = slipped(schedule, Costs(), measured)
    last = int(np.argmax(of.slip))
    because = of.because(work, last)
    assert sum(because.values()) == of.slip[last] > 0
    grown = {key: value for key, value in because.items() if key[0] != "slack"}
    assert set(grown) == {("compute", 2)}
