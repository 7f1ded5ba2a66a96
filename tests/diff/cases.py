"""Steps to be diffed: simulated ones, some with noise and with a fault."""

from __future__ import annotations

from hypothesis import strategies as st

from pipetrace.costs import Costs
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, costs, sizes, within


@st.composite
def waitings(draw: st.DrawFn) -> Waiting:
    """Ways of waiting under which every valid schedule without listed communication ends."""
    policy = draw(st.sampled_from(tuple(Wait)))
    return Waiting(policy, post=draw(st.sampled_from((0, 1_000, 70_001))))


@st.composite
def two_costs(draw: st.DrawFn) -> tuple[Schedule, Costs, Costs]:
    """A schedule, and two models that may be run with it."""
    size: Sizes = draw(sizes(4, 8))
    schedule = size.build()
    return schedule, within(draw(costs(8)), schedule), within(draw(costs(8)), schedule)


def span_of(timeline: Timeline) -> int:
    """ns from the first to the last compute tile, by hand."""
    return int(timeline.end[timeline.is_compute].max() - timeline.start[timeline.is_compute].min())
