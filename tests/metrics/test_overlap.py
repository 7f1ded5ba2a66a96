from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from pipetrace.action import Action, Kind, Part, parse_action
from pipetrace.costs import Costs
from pipetrace.metrics import Limit, all_to_alls, bubbles, limits, pair_overlaps
from pipetrace.part_costs import LayerCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.passes.test_expand_moe import MS, layer, layer_costs, overlaps, run_of
from tests.strategies import Sizes, sizes


def measured(*tiles: tuple[str, Lane, int, int], rank: int = 0) -> Timeline:
    return Timeline.from_tiles(
        2, [Tile(parse_action(text), rank, lane, start, end) for text, lane, start, end in tiles], epoch=1
    )


COMPUTE, TRAVELS = Lane.COMPUTE, Lane.ALL_TO_ALL


def test_what_compute_covers_is_hidden() -> None:
    of = all_to_alls(
        measured(
            ("0F0@0.mlp", COMPUTE, 0, 10),
            ("0I1@0.mlp", COMPUTE, 12, 20),
            ("0F2@0.dispatch", TRAVELS, 5, 15),
            ("0F2@0.combine", TRAVELS, 18, 30),
            rank=1,
        )
    )
    assert of.hidden.tolist() == [8, 2]
    assert of.exposed.tolist() == [2, 10]
    assert [column.tolist() for column in of.exposed_spans()] == [[0, 1], [10, 20], [12, 30]]
    assert (of.per_rank(of.duration), of.per_rank(of.exposed)) == ((0, 22), (0, 12))
    assert of.fraction_exposed == 12 / 22
    assert of.by_what() == {(Kind.F, Part.DISPATCH): (10, 2), (Kind.F, Part.COMBINE): (12, 10)}
    assert of.hidden_behind() == {
        (Kind.F, Part.DISPATCH): {(Kind.F, Part.MLP): 5, (Kind.I, Part.MLP): 3},
        (Kind.F, Part.COMBINE): {(Kind.I, Part.MLP): 2},
    }


def test_compute_that_a_recording_shows_twice_hides_once() -> None:
    of = all_to_alls(
        measured(
            ("0F0@0.mlp", COMPUTE, 0, 10),
            ("0F1@0.mlp", COMPUTE, 2, 4),
            ("0F3@0.mlp", COMPUTE, 8, 12),
            ("0F2@0.dispatch", TRAVELS, 1, 20),
        )
    )
    assert of.hidden.tolist() == [11]
    assert of.time.tolist() == [9, 2]


def test_nothing_to_hide() -> None:
    of = all_to_alls(measured(("0F0@0.mlp", COMPUTE, 0, 10)))
    assert (of.fraction_exposed, of.by_what(), of.hidden_behind()) == (0.0, {}, {})
    assert len(all_to_alls(Timeline.from_tiles(1, [])).tiles) == 0


@pytest.mark.parametrize(
    ("costs", "limit", "exposed"),
    [
        (layer(), Limit.COMPUTE, 0),
        (layer(all_to_all=1.5), Limit.COMMUNICATION, 1),
        (layer(attn=0.5, mlp=2, weight=0), Limit.ORDER, 1),
    ],
)
def test_what_limits_a_pair(costs: Costs, limit: Limit, exposed: float) -> None:
    """The three cases worked out by hand in tests/passes/test_expand_moe.py."""
    schedule = run_of(8)
    for order in (MoeOrder.ALIGNED, MoeOrder.DUALPIPE):
        of = all_to_alls(simulate(expand_moe(schedule, Overlap(order), costs), costs))
        pairs = pair_overlaps(schedule, of)
        assert [str(pair.pair) for pair in pairs[:2]] == ["(0F1;0B0)OVERLAP_F_B", "(0F2;0B1)OVERLAP_F_B"]
        assert limits(pairs) == {limit: 8}
        assert [pair.exposed / MS for pair in pairs[1:-1]] == [exposed] * 6
        assert {pair.hidden + pair.exposed for pair in pairs} == {pair.all_to_all for pair in pairs}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        # combB has attnF of 0.5 beside it, combF attnB of 0.5.
        (MoeOrder.ALIGNED, {"combine B": 0.5, "combine F": 0.5}),
        # The combine of the backward runs after all else of its block, beside the next attnF and the last attnI.
        (MoeOrder.DUALPIPE, {"combine I": 1}),
    ],
)
def test_which_are_exposed(order: MoeOrder, expected: dict[str, float]) -> None:
    """attn 0.5, mlp 2, all-to-alls 1, no W: a pair takes 6 where the compute lane has 5; ms of a steady one."""
    costs = layer(attn=0.5, mlp=2, weight=0)
    of = all_to_alls(simulate(expand_moe(run_of(8), Overlap(order), costs), costs))
    inner = (of.tiles.start >= 16 * MS) & (of.tiles.start < 40 * MS)  # four pairs of 6
    exposed: dict[str, float] = {}
    for tile, time in zip(of.tiles.where(inner), of.exposed[inner].tolist(), strict=True):
        assert isinstance(tile.action, Action)
        assert tile.action.part is not None
        if time:
            name = f"{tile.action.part.name.lower()} {tile.action.kind.name}"
            exposed[name] = exposed.get(name, 0) + time / MS / 4
    assert exposed == expected


@settings(max_examples=40)
@given(sizes(ranks=4, microbatches=8), overlaps, layer_costs)
def test_hidden_and_exposed_add_up(size: Sizes, overlap: Overlap, of_layer: LayerCosts) -> None:
    schedule, costs = size.build(), Costs(layer=of_layer)
    expanded = expand_moe(schedule, overlap, costs)
    timeline = simulate(expanded, costs)
    of = all_to_alls(timeline)
    # Which pairs there are is seen in the parts as well.
    assert pair_overlaps(expanded, of) == pair_overlaps(schedule, of)
    assert (of.hidden >= 0).all()
    assert (of.exposed >= 0).all()
    assert int(of.time.sum()) == int(of.hidden.sum())
    sums = np.zeros(len(of.tiles), dtype=np.int64)
    np.add.at(sums, of.piece, of.time)
    assert np.array_equal(sums, of.hidden)
    row, start, end = of.exposed_spans()
    sums = np.zeros(len(of.tiles), dtype=np.int64)
    np.add.at(sums, row, end - start)
    assert np.array_equal(sums, of.exposed)
    for at, begin, stop in zip(row.tolist(), start.tolist(), end.tolist(), strict=True):
        beside = of.compute.where(of.compute.rank == of.tiles.rank[at])
        assert not ((beside.start < stop) & (beside.end > begin) & (beside.end > beside.start)).any()
    # What is exposed is idle time of the compute lane, one all-to-all at a time.
    for rank, exposed in enumerate(of.per_rank(of.exposed)):
        first, last = timeline.span
        mine = timeline.where((timeline.rank == rank) & (timeline.lane <= Lane.ALL_TO_ALL))
        outside = max(int(mine.end.max(initial=last)) - last, 0) + max(first - int(mine.start.min(initial=first)), 0)
        assert exposed <= bubbles(timeline).global_idle[rank] + outside
    for pair in pair_overlaps(schedule, of):
        assert pair.start <= pair.end
        assert 0 <= pair.exposed <= pair.all_to_all
