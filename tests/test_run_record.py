from __future__ import annotations

import pytest

from pipetrace.costs import Costs
from pipetrace.errors import TraceError
from pipetrace.run_record import check_before
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.trace.recording import Recording, replica_makespans
from pipetrace.trace.run_folder import RunInfo


def of(schedule: Schedule, source: str, *, says: str | None = None) -> Recording:
    """A recording of one step, by a run that names its schedule or by traces of others."""
    run = None if says is None else RunInfo(says, schedule.ranks, schedule.microbatches, "sleep", Costs(), True, 1)
    return Recording(source, schedule.ranks, (simulate(schedule),), ("ProfilerStep#1",), (), (), (), run, True)


@pytest.mark.parametrize(
    ("earlier", "says", "named"),
    [
        (build("zb-h1", 4, 8), "zb-h1", "OLD ran another schedule (zb-h1, p = 4, m = 8) than NEW (1f1b, p = 4, m = 8)"),
        (build("1f1b", 2, 8), "1f1b", "(1f1b, p = 2, m = 8)"),
        (build("1f1b", 4, 4), "1f1b", "(1f1b, p = 4, m = 4)"),
        (build("1f1b", 2, 8), None, "(p = 2, other actions)"),
        (build("interleaved", 4, 24), None, "(p = 4, other actions)"),
    ],
)
def test_a_run_of_another_schedule_is_not_before(earlier: Schedule, says: str | None, named: str) -> None:
    schedule = build("1f1b", 4, 8)
    with pytest.raises(TraceError) as raised:
        check_before(schedule, of(schedule, "NEW", says="1f1b"), of(earlier, "OLD", says=says))
    assert named in raised.value.message
    assert "its own ideal" in str(raised.value.hint)


@pytest.mark.parametrize("says", ["1f1b", "order_of_my_own", None])
def test_an_earlier_run_of_the_same_schedule_is(says: str | None) -> None:
    """A list that was read from a file has the file's name, which tells nothing."""
    schedule = build("1f1b", 4, 8)
    check_before(schedule, of(schedule, "NEW", says="1f1b"), of(schedule, "OLD", says=says))


def test_each_replicas_median_step() -> None:
    schedule = build("1f1b", 2, 2)
    assert replica_makespans(of(schedule, "RUN")) == [simulate(schedule).makespan]
