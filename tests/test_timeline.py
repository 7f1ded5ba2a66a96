from __future__ import annotations

import numpy as np

from pipetrace.action import Action, Kind, Pair, parse_action
from pipetrace.timeline import Lane, Tile, Timeline

F0, F1, B0 = parse_action("0F0"), parse_action("0F1"), parse_action("0B0")
RECV = parse_action("1RECV_F0")


def example() -> Timeline:
    return Timeline.from_tiles(
        2,
        [
            Tile(F1, 0, Lane.COMPUTE, 10, 30),
            Tile(RECV, 1, Lane.RECV, 5, 9, posted=0, waited=2),
            Tile(F0, 0, Lane.COMPUTE, 4, 10),
            Tile(parse_action("0OPTIM"), 0, Lane.COMPUTE, 40, 50),
        ],
        epoch=1_000,
    )


def test_tiles_come_back_sorted() -> None:
    tiles = list(example())
    assert [str(tile.action) for tile in tiles] == ["0F0", "0F1", "0OPTIM", "1RECV_F0"]
    assert tiles[3] == Tile(RECV, 1, Lane.RECV, 5, 9, posted=0, waited=2)
    assert (tiles[0].posted, tiles[0].waited, tiles[0].duration) == (None, None, 6)


def test_makespan_is_of_compute_alone() -> None:
    assert example().span == (4, 30)
    assert example().makespan == 26
    assert example().is_compute.tolist() == [True, True, False, False]


def test_find_by_identity() -> None:
    pair = Timeline.from_tiles(1, [Tile(Pair(F1, B0), 0, Lane.COMPUTE, 0, 7)])
    assert pair.find(F1) == pair.find(B0) == Tile(Pair(F1, B0), 0, Lane.COMPUTE, 0, 7)
    assert pair.find(F0) is None
    assert pair.find(F1, replica=1) is None


def test_shifting_moves_the_clock_and_not_the_tiles() -> None:
    moved = example().from_first_action()
    assert moved.span == (0, 26)
    assert moved.epoch == 1_004
    tile = moved.find(RECV)
    assert tile is not None
    assert (tile.start, tile.end, tile.posted, tile.waited) == (1, 5, -4, -2)
    found = moved.find(F0)
    assert found is not None
    assert found.posted is None  # what is unknown stays unknown


def test_empty() -> None:
    empty = Timeline.from_tiles(3, [])
    assert (len(empty), empty.makespan, list(empty), empty.find(F0)) == (0, 0, [], None)
    assert empty.from_first_action().span == (0, 0)


def test_columns_left_out_are_filled() -> None:
    codes = np.array([F0.code])
    one = Timeline.from_columns(1, {"rank": codes * 0, "code": codes, "start": codes * 0, "end": codes * 0 + 5})
    assert list(one) == [Tile(F0, 0, Lane.COMPUTE, 0, 5)]


def test_replicas_are_kept_apart() -> None:
    action = Action(Kind.F, 0, 0)
    both = Timeline.from_tiles(
        1, [Tile(action, 0, Lane.COMPUTE, 0, 1), Tile(action, 0, Lane.COMPUTE, 5, 9, replica=1)], replicas=2
    )
    second = both.find(action, replica=1)
    assert second is not None
    assert second.duration == 4
