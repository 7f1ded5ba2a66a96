from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given

from pipetrace.action import parse, parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.metrics import Cause, bubbles, gaps, idle_by_cause
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.metrics.test_bindings import TWO, measured
from tests.strategies import Sizes, costs, sizes, within


def check(schedule: Schedule, timeline: Timeline, costs: Costs | None = None) -> None:
    """What holds for all gaps of any timeline."""
    found, idle = gaps(schedule, timeline, costs=costs), bubbles(timeline)
    by_rank: dict[int, int] = defaultdict(int)
    by_cause: dict[tuple[Cause, int], int] = defaultdict(int)
    first, last = timeline.span
    for gap in found:
        assert first <= gap.start < gap.end <= last
        by_rank[gap.rank] += gap.duration
        by_cause[gap.cause, gap.rank] += gap.duration
        assert str(gap).startswith(f"rank {gap.rank} ")
        assert (gap.action_after is None) == (gap.cause is Cause.NOTHING_LEFT)
    assert tuple(by_rank[rank] for rank in range(timeline.ranks)) == idle.global_idle
    for one, other in pairwise(found):
        assert (one.rank, one.end) <= (other.rank, other.start)
    sums = idle_by_cause(schedule, timeline, costs=costs)
    assert list(sums) == list(Cause)
    for cause, of in sums.items():
        assert of == tuple(by_cause[cause, rank] for rank in range(timeline.ranks))


@given(sizes(), costs(16))
def test_gaps_are_the_global_idle_and_all_have_a_cause(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    check(schedule, timeline, given)
    for gap in gaps(schedule, timeline, costs=given):
        # An ideal has no host, and within a rank everything is there in time.
        assert gap.cause not in (Cause.HOST, Cause.LOCAL)
        assert (gap.awaits is None) == (gap.cause is Cause.NOTHING_LEFT)
        assert (gap.action_before is None) == (gap.cause is Cause.NOTHING_YET)


def test_no_idle_no_gaps() -> None:
    schedule = build("1f1b", 1, 5)
    assert gaps(schedule, simulate(schedule)) == []
    assert gaps(TWO, Timeline.from_tiles(2, [])) == []


def test_1f1b_in_words() -> None:
    schedule = build("1f1b", 3, 3)
    found = gaps(schedule, simulate(schedule, Costs(StageCosts(1, 1, 1))))
    assert [(gap.start, gap.end, str(gap)) for gap in found if gap.rank == 0] == [
        (
            3,
            7,
            "rank 0 waits for B0 of stage 1 on rank 1, which waits for B0 of stage 2 on rank 2",
        ),
        (9, 10, "rank 0 waits for B1 of stage 1 on rank 1"),
        (12, 13, "rank 0 waits for B2 of stage 1 on rank 1"),
    ]
    assert [(gap.start, gap.end, gap.cause, str(gap)) for gap in found if gap.rank == 2] == [
        (
            0,
            2,
            Cause.NOTHING_YET,
            "rank 2 has nothing yet to do: it waits for F0 of stage 1 on rank 1, "
            "which waits for F0 of stage 0 on rank 0",
        ),
        (11, 15, Cause.NOTHING_LEFT, "rank 2 has nothing left to do"),
    ]
    first = found[0]
    assert (first.cause, str(first.action_before), str(first.action_after)) == (Cause.GRADIENT, "0F2", "0B0")
    assert first.awaits == parse_action("1B0")
    assert str(found[-1].action_before) == "2B2"


def test_a_long_chain_is_cut() -> None:
    schedule = build("1f1b", 8, 8)
    last = next(gap for gap in gaps(schedule, simulate(schedule)) if gap.rank == 7)
    assert str(last).count("which") == 4
    assert str(last).endswith("on rank 2, …")


def test_what_is_made_then_sent_is_two_gaps() -> None:
    schedule = build("1f1b", 2, 2)
    found = gaps(schedule, simulate(schedule, Costs(StageCosts(10, 10, 10), p2p=3)))
    assert [(gap.start, gap.end, gap.cause, str(gap)) for gap in found if gap.rank == 0][:2] == [
        (20, 43, Cause.GRADIENT, "rank 0 waits for B0 of stage 1 on rank 1, which runs on rank 1 after F0 of stage 1"),
        (43, 46, Cause.TRANSFER, "rank 0 waits for the transfer of B0 of stage 1 on rank 1"),
    ]


def test_a_pair_is_named_by_the_half_that_is_needed() -> None:
    schedule = build("dualpipev", 2, 4)
    texts = [str(gap) for gap in gaps(schedule, simulate(schedule, Costs(StageCosts(1, 1, 1), p2p=1)))]
    assert any("waits for F" in text for text in texts)
    assert not any("OVERLAP" in text for text in texts)


def test_what_was_measured_has_the_hosts_share() -> None:
    timeline = measured(
        ("0F0", 0, 5, 10),
        ("0F1", 0, 12, 20),
        ("1F0", 1, 16, 29),
        ("1F1", 1, 36, 40),
        waits=(("1RECV_F0", 1, 0, 10, 15), ("1RECV_F1", 1, 31, 31, 35)),
    )
    check(TWO, timeline)
    found = gaps(TWO, timeline)
    assert [(gap.rank, gap.start, gap.end, gap.cause) for gap in found] == [
        (0, 10, 12, Cause.HOST),
        (0, 20, 40, Cause.NOTHING_LEFT),
        (1, 5, 16, Cause.NOTHING_YET),
        (1, 29, 35, Cause.TRANSFER),
        (1, 35, 36, Cause.HOST),
    ]
    assert str(found[0]) == "rank 0 is late with 0F1: what it needs is there"
    assert found[0].awaits is None


def test_with_clocks_apart_overlaps_and_missing_actions() -> None:
    check(TWO, measured(("0F0", 0, 50, 60), ("0F1", 0, 55, 70), ("1F0", 1, 0, 10), ("1F1", 1, 65, 75)))
    check(TWO, measured(("1F0", 1, 3, 10), ("1F1", 1, 20, 40), ("1B0", 1, 25, 30), ("1B1", 1, 50, 60)))


def test_a_rank_without_anything_has_nothing_left() -> None:
    timeline = measured(("0F0", 0, 5, 10))
    check(TWO, timeline)
    (gap,) = gaps(TWO, timeline)
    assert (gap.rank, gap.cause, gap.action_before) == (1, Cause.NOTHING_LEFT, None)


def test_what_is_made_on_another_lane() -> None:
    timeline = Timeline.from_tiles(
        1,
        [
            Tile(parse("0F0"), 0, Lane.COMPUTE, 0, 2),
            Tile(parse("0F1"), 0, Lane.ALL_TO_ALL, 2, 10),
            Tile(parse("0B1"), 0, Lane.COMPUTE, 10, 20),
        ],
    )
    schedule = build("gpipe", 1, 2)
    check(schedule, timeline)
    assert idle_by_cause(schedule, timeline)[Cause.LOCAL] == (8,)


@pytest.mark.parametrize("name", ["1f1b", "dualpipe"])
def test_of_one_replica(name: str) -> None:
    schedule = build(name, 2, 4)
    assert gaps(schedule, simulate(schedule), replica=1) == []
