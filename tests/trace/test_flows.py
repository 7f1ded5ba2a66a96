"""Arrows follow the data and never go back in time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.timeline import Timeline
from pipetrace.trace.flows import dependencies, place, place_either_way

SLICES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), min_size=2, max_size=12)


def texts(timeline: Timeline, rows: np.ndarray) -> list[str]:
    return [str(timeline.tile(int(row)).action) for row in rows]


def test_dependencies_between_ranks() -> None:
    timeline = pipetrace.simulate(pipetrace.build("1f1b", 3, 2))
    for kinds, step, expected in (
        ((Kind.F,), 1, {"0F0>1F0", "1F0>2F0", "0F1>1F1", "1F1>2F1"}),
        ((Kind.I, Kind.B), -1, {"2B0>1B0", "1B0>0B0", "2B1>1B1", "1B1>0B1"}),
    ):
        producer, consumer = dependencies(timeline, kinds, step)
        pairs = zip(texts(timeline, producer), texts(timeline, consumer), strict=True)
        assert {f"{a}>{b}" for a, b in pairs} == expected


def test_no_dependency_within_a_rank_or_over_a_gap() -> None:
    timeline = pipetrace.simulate(pipetrace.build("1f1b", 3, 2))
    assert dependencies(timeline.where(timeline.rank != 1), (Kind.F,), 1)[0].size == 0
    assert dependencies(pipetrace.simulate(pipetrace.build("gpipe", 1, 3)), (Kind.F,), 1)[0].size == 0
    assert dependencies(timeline.where(timeline.rank < 0), (Kind.F,), 1)[0].size == 0


def test_no_arrow_from_another_microbatch_where_the_producer_is_missing() -> None:
    timeline = pipetrace.simulate(pipetrace.build("1f1b", 2, 3))
    lacking = timeline.where(timeline.code != Action(Kind.F, 0, 1).code)
    producer, consumer = dependencies(lacking, (Kind.F,), 1)
    assert texts(lacking, producer) == ["0F0", "0F2"]
    assert texts(lacking, consumer) == ["1F0", "1F2"]


def test_last_part_feeds_the_first_part() -> None:
    action = pipetrace.Action
    attn, combine = pipetrace.Part.ATTN, pipetrace.Part.COMBINE
    tiles = [
        pipetrace.Tile(action(Kind.F, 0, 0, 0, 0, attn), 0, pipetrace.Lane.COMPUTE, 0, 5),
        pipetrace.Tile(action(Kind.F, 0, 0, 0, 0, combine), 0, pipetrace.Lane.ALL_TO_ALL, 5, 9),
        pipetrace.Tile(action(Kind.F, 1, 0, 0, 0, attn), 1, pipetrace.Lane.COMPUTE, 9, 14),
        pipetrace.Tile(action(Kind.F, 1, 0, 0, 0, combine), 1, pipetrace.Lane.ALL_TO_ALL, 14, 18),
    ]
    timeline = Timeline.from_tiles(2, tiles)
    producer, consumer = dependencies(timeline, (Kind.F,), 1)
    assert texts(timeline, producer) == ["0F0@0.combine"]
    assert texts(timeline, consumer) == ["1F0@0.attn"]


def test_both_halves_of_a_pair_have_arrows() -> None:
    action, lane = pipetrace.Action, pipetrace.Lane.COMPUTE
    pair = pipetrace.Pair(action(Kind.F, 1, 1), action(Kind.B, 1, 0))
    tiles = [
        pipetrace.Tile(action(Kind.F, 0, 1), 0, lane, 0, 5),
        pipetrace.Tile(pair, 1, lane, 5, 9),
        pipetrace.Tile(action(Kind.B, 0, 0), 0, lane, 9, 14),
    ]
    timeline = Timeline.from_tiles(2, tiles)
    assert texts(timeline, dependencies(timeline, (Kind.F,), 1)[1]) == [str(pair)]
    assert texts(timeline, dependencies(timeline, (Kind.I, Kind.B), -1)[0]) == [str(pair)]


@given(SLICES, st.data())
@settings(deadline=None)
def test_ends_lie_inside_their_slices(slices: list[tuple[int, int]], data: st.DataObject) -> None:
    start = np.array([s for s, _ in slices], dtype=np.int64)
    end = start + np.array([length for _, length in slices], dtype=np.int64)
    ends = st.lists(st.integers(0, start.size - 1), min_size=5, max_size=5)
    producer, consumer = (np.array(data.draw(ends), dtype=np.int64) for _ in range(2))
    arrows = place(start, end, producer, consumer)
    assert arrows.leave.size + arrows.dropped == 5
    for p, c, leave, arrive in zip(
        *(a.tolist() for a in (arrows.producer, arrows.consumer, arrows.leave, arrows.arrive)), strict=True
    ):
        assert start[p] <= leave < max(end[p], start[p] + 1)
        assert start[c] <= arrive < max(end[c], start[c] + 1)
        assert leave < arrive
    either = place_either_way(start, end, producer, consumer)
    assert either.dropped <= arrows.dropped


def test_clock_noise_is_shown_while_the_slices_allow_it() -> None:
    # What ends after its consumer starts, what starts with it, what starts after it: viewers turn that one around.
    start, end = np.array([10, 12, 10, 4]), np.array([20, 22, 14, 14])
    arrows = place(start, end, np.array([0, 0, 0]), np.array([1, 2, 3]))
    assert (arrows.leave.tolist(), arrows.arrive.tolist(), arrows.dropped) == ([11, 10], [12, 11], 1)
