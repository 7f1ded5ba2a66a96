"""Which tile is which of another timeline."""

from __future__ import annotations

import numpy as np

import pipetrace
from pipetrace.action import Action, Kind, Pair
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.counterparts import NO_TILE, counterparts


def tile(action: Action | Pair, start: int, replica: int = 0) -> Tile:
    return Tile(action, 0, Lane.COMPUTE, start, start + 5, replica=replica)


def test_the_same_action_in_another_order() -> None:
    ideal = pipetrace.simulate(pipetrace.build("1f1b", 4, 8))
    measured = pipetrace.simulate(pipetrace.build("gpipe", 4, 8))
    there, here = counterparts(ideal, measured)
    assert (ideal.code == measured.code[there.row]).all()
    assert (here.row[there.row] == np.arange(len(ideal))).all()
    assert there.same.all()
    assert here.same.all()


def test_a_pair_is_matched_by_its_halves_of_which_the_forward_leads() -> None:
    forward, backward = Action(Kind.F, 0, 1), Action(Kind.B, 0, 0)
    apart = Timeline.from_tiles(1, [tile(backward, 0), tile(forward, 5)])
    pair = Timeline.from_tiles(1, [tile(Pair(forward, backward), 0)])
    there, here = counterparts(apart, pair)
    assert there.row.tolist() == [0, 0]
    assert here.row.tolist() == [1]
    assert not there.same.any()
    assert not here.same.any()
    there, here = counterparts(pair, apart)
    assert here.row.tolist() == [0, 0]
    assert there.row.tolist() == [1]


def test_what_is_missing_or_of_another_replica_has_none() -> None:
    ideal = Timeline.from_tiles(1, [tile(Action(Kind.F, 0, 0), 0), tile(Action(Kind.F, 0, 1), 5)])
    measured = Timeline.from_tiles(
        1, [tile(Action(Kind.F, 0, 1), 0), tile(Action(Kind.F, 0, 0), 0, replica=1)], replicas=2
    )
    there, here = counterparts(ideal, measured)
    assert there.row.tolist() == [NO_TILE, 0]
    assert here.row.tolist() == [1, NO_TILE]
    nothing = Timeline.from_tiles(1, [])
    assert counterparts(ideal, nothing)[0].row.tolist() == [NO_TILE, NO_TILE]
    assert counterparts(nothing, nothing)[0].row.size == 0
