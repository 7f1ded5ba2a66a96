from __future__ import annotations

from hypothesis import given

from pipetrace.action import Action, Kind, Pair, parse
from pipetrace.costs import Costs, StageCosts
from pipetrace.metrics import bubbles, phases
from pipetrace.metrics.phases import PhaseIdle
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.strategies import Sizes, costs, sizes, within

UNIT = Costs(StageCosts(1, 1, 1))


@given(sizes(), costs(16))
def test_the_parts_make_up_the_whole(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    of, idle = phases(timeline), bubbles(timeline)
    for parts, whole in ((of.global_idle, idle.global_idle), (of.in_span_idle, idle.in_span_idle)):
        every = list(zip(parts.warm_up, parts.steady, parts.drain, strict=True))
        assert tuple(map(sum, every)) == whole
        assert min(min(row) for row in every) >= 0
    # Inside its own span both definitions are one.
    assert of.global_idle.steady == of.in_span_idle.steady
    first, last = timeline.span
    for steady, drain in zip(of.steady_start, of.drain_start, strict=True):
        assert first <= steady <= drain <= last


def test_1f1b_warms_up_and_drains_evenly() -> None:
    p, m = 4, 8
    of = phases(simulate(build("1f1b", p, m), UNIT))
    end = 3 * (m + p - 1)
    # F = 1 down to the last rank, then B = 2 a rank back up.
    assert of.steady_start == tuple(p + 2 * (p - 1 - rank) for rank in range(p))
    assert of.global_idle.steady == (0, 0, 0, 0)
    assert of.in_span_idle.drain[-1] == 0
    assert of.global_idle.drain == (3, 4, 5, 6)
    assert of.global_idle.warm_up == (6, 5, 4, 3)
    assert sum(of.global_idle.warm_up) + sum(of.global_idle.drain) == p * (end - 3 * m)


def test_zb_h1_idles_while_it_warms_up_and_at_its_outer_edges() -> None:
    of = phases(simulate(build("zb-h1", 4, 8), UNIT))
    assert of.in_span_idle == PhaseIdle((3, 2, 1, 0), (0, 0, 0, 0), (0, 0, 0, 0))
    assert of.global_idle == PhaseIdle((3, 3, 3, 3), (0, 0, 0, 0), (0, 0, 0, 0))


def test_gpipe_has_no_steady_state() -> None:
    p, m = 3, 4
    of = phases(simulate(build("gpipe", p, m), UNIT))
    assert of.steady_start == of.drain_start
    # The forwards' and the backwards' ramps: p-1 slots in all, of 1 and of 2.
    assert of.global_idle == PhaseIdle((6, 4, 2), (0, 0, 0), (0, 2, 4))
    assert of.in_span_idle == PhaseIdle((6, 3, 0), (0, 0, 0), (0, 0, 0))


def test_a_pair_ends_the_warm_up_and_begins_the_drain() -> None:
    pair = parse("(0F1;0B0)OVERLAP_F_B")
    assert isinstance(pair, Pair)
    timeline = Timeline.from_tiles(
        1,
        [
            Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 0, 2),
            Tile(pair, 0, Lane.COMPUTE, 5, 9),
            Tile(Action(Kind.B, 0, 1), 0, Lane.COMPUTE, 10, 12),
        ],
    )
    of = phases(timeline)
    assert (of.steady_start, of.drain_start) == ((5,), (9,))
    assert of.global_idle == of.in_span_idle == PhaseIdle((3,), (0,), (1,))


def test_what_is_missing_is_warm_up() -> None:
    """A recording's rank without a backward, one without a forward, and one without anything."""
    timeline = Timeline.from_tiles(
        3,
        [
            Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 10, 12),
            Tile(Action(Kind.B, 1, 0), 1, Lane.COMPUTE, 15, 20),
        ],
    )
    of = phases(timeline)
    assert (of.steady_start, of.drain_start) == ((20, 15, 20), (20, 15, 20))
    assert of.global_idle == PhaseIdle((8, 5, 10), (0, 0, 0), (0, 0, 0))
    assert of.in_span_idle == PhaseIdle((0, 0, 0), (0, 0, 0), (0, 0, 0))
    assert phases(Timeline.from_tiles(1, [])).global_idle == PhaseIdle((0,), (0,), (0,))


def test_of_one_replica() -> None:
    action = Action(Kind.F, 0, 0)
    both = Timeline.from_tiles(
        1, [Tile(action, 0, Lane.COMPUTE, 0, 1), Tile(action, 0, Lane.COMPUTE, 5, 9, replica=1)], replicas=2
    )
    assert phases(both, replica=1).steady_start == (9,)
