from __future__ import annotations

import pytest
from hypothesis import given

from pipetrace.action import parse_action
from pipetrace.costs import Costs
from pipetrace.metrics import bubbles
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.strategies import Sizes, costs, sizes, within


def test_zb_h1_bubbles_as_in_the_paper() -> None:
    idle = bubbles(simulate(build("zb-h1", 4, 8)))
    assert idle.makespan == 27_000_000
    assert idle.in_span_idle == (3_000_000, 2_000_000, 1_000_000, 0)
    assert idle.global_idle == (3_000_000,) * 4


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 1), (2, 3), (4, 8), (8, 16), (5, 2)])
def test_closed_forms(name: str, p: int, m: int) -> None:
    idle = bubbles(simulate(build(name, p, m)))
    assert idle.makespan == (m + p - 1) * 3_000_000
    assert idle.fraction == pytest.approx((p - 1) / (m + p - 1))


@given(sizes(), costs(16))
def test_busy_and_idle_make_up_the_makespan(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    idle = bubbles(simulate(schedule, given))
    for busy, outer, inner in zip(idle.busy, idle.global_idle, idle.in_span_idle, strict=True):
        assert busy + outer == idle.makespan
        assert 0 <= inner <= outer
    assert 0 <= idle.fraction <= 1


def test_overlapping_tiles_are_busy_once() -> None:
    tiles = [
        Tile(parse_action(text), 0, Lane.COMPUTE, start, end)
        for text, start, end in (("0F0", 0, 10), ("0F1", 2, 4), ("0F2", 8, 12), ("0F3", 20, 25))
    ]
    idle = bubbles(Timeline.from_tiles(2, tiles))
    assert idle.busy == (17, 0)
    assert idle.global_idle == (8, 25)
    assert idle.in_span_idle == (8, 0)


def test_bubbles_of_one_replica() -> None:
    action = parse_action("0F0")
    both = Timeline.from_tiles(
        1, [Tile(action, 0, Lane.COMPUTE, 0, 1), Tile(action, 0, Lane.COMPUTE, 5, 9, replica=1)], replicas=2
    )
    assert bubbles(both, replica=1).makespan == 4


def test_empty_timeline() -> None:
    assert bubbles(Timeline.from_tiles(2, [])).fraction == 0
