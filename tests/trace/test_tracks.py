"""The one description from which all formats are written."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind, Pair
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.tracks import Tracks
from tests.trace.shown import Slice, slices
from tests.trace.shown import tiles as tiles_of


def ideal(name: str = "zb-h1", ranks: int = 3, microbatches: int = 4) -> Timeline:
    return pipetrace.simulate(pipetrace.build(name, ranks, microbatches))


def slow(name: str = "zb-h1", ranks: int = 3, microbatches: int = 4) -> Timeline:
    costs = pipetrace.parse_costs("F=1.3,I=0.9,W=1.1", p2p=1_700_001)
    return pipetrace.simulate(pipetrace.build(name, ranks, microbatches), costs)


def by_track(tracks: Tracks) -> dict[int, list[Slice]]:
    found = defaultdict(list)
    for tile in slices(tracks):
        found[tile.tid].append(tile)
    return found


def test_one_timeline_has_a_process_a_rank() -> None:
    tracks = Tracks([("ideal", ideal())])
    assert [(p.pid, p.name) for p in tracks.processes] == [
        (1, "rank 0"),
        (2, "rank 1"),
        (3, "rank 2"),
        (4, "all ranks"),
    ]
    assert [(t.tid, t.pid, t.name) for t in tracks.tracks] == [
        (5 + 2 * rank + lane, 1 + rank, ("phase", f"rank {rank} compute")[lane])
        for rank in range(3)
        for lane in range(2)
    ]
    assert len(tracks) == len(list(slices(tracks))) == 36 + 9
    first = next(tiles_of(tracks))
    assert (first.name, first.category, first.start, first.end) == ("F 0", "compute", 0, 1_000_000)
    assert first.args == {
        "action": "0F0",
        "stage": 0,
        "microbatch": 0,
        "pipe": 0,
        "rank": 0,
        "duration_ns": 1_000_000,
    }


def test_two_timelines_stand_rank_by_rank() -> None:
    tracks = Tracks([("ideal", ideal()), ("measured", slow())])
    assert [(p.pid, p.name) for p in tracks.processes][:4] == [
        (1, "rank 0 ideal"),
        (2, "rank 0 measured"),
        (3, "rank 1 ideal"),
        (4, "rank 1 measured"),
    ]
    assert {c.name for c in tracks.counters} == {
        "idle ideal",
        "idle measured",
        "in flight, freed at I",
        "in flight, freed at W",
        "drift",
    }
    slips = {t.args["action"]: t.args.get("slip_ns") for t in slices(tracks) if t.pid == 2 and t.category == "compute"}
    assert slips["0F0"] == 300_000
    assert slips["0F1"] == 600_000
    theirs = [t for t in tiles_of(tracks) if t.args["action"] == "1F0" and t.category == "compute"]
    assert theirs[0].args["measured_start_ns"] == theirs[1].start
    assert theirs[1].args["ideal_start_ns"] == theirs[0].start
    drift = next(c for c in tracks.counters if c.name == "drift" and c.pid == 2)
    assert drift.series.value[0] == 300_000
    assert (drift.unit, drift.per) == ("ms", 1_000_000)


def test_every_matched_action_has_an_arrow_to_its_counterpart() -> None:
    tracks = Tracks([("ideal", ideal()), ("measured", slow())])
    leaves = {e.id: t for t in slices(tracks) for e in t.leaves if e.category == "counterpart"}
    arrives = {e.id: t for t in slices(tracks) for e in t.arrives if e.category == "counterpart"}
    assert leaves.keys() == arrives.keys()
    assert len(leaves) == 36
    assert all(leaves[i].args["action"] == arrives[i].args["action"] for i in leaves)
    assert all(leaves[i].pid + 1 == arrives[i].pid for i in leaves)


def test_common_zero_is_the_first_action() -> None:
    late = slow().shifted(1_000_000_000)
    receive = Tile(Action(Kind.RECV_F, 1, 0), 1, Lane.RECV, 999_000_000, 1_000_500_000, waited=998_000_000)
    measured = Timeline.from_tiles(3, [*late, receive], epoch=5_000_000_000)
    tracks = Tracks([("ideal", ideal()), ("measured", measured)])
    starts = {(t.pid, t.name): t.start for t in slices(tracks)}
    assert min(t.start for t in slices(tracks)) == 0
    # The wait began 2 ms before the first action of its timeline: both timelines lie 2 ms after zero.
    assert starts[1, "F 0"] == starts[2, "F 0"] == 2_000_000
    assert tracks.epoch == 5_998_000_000


def test_a_tile_of_no_length_stands_beside_what_starts_with_it() -> None:
    tiles = [
        Tile(Action(Kind.W, 0, 0), 0, Lane.COMPUTE, 5, 5),
        Tile(Action(Kind.F, 0, 1), 0, Lane.COMPUTE, 5, 9),
        Tile(Action(Kind.W, 0, 1), 0, Lane.COMPUTE, 9, 9),
    ]
    tracks = Tracks([("x", Timeline.from_tiles(1, tiles))])
    names = {t.tid: t.name for t in tracks.tracks}
    assert {t.name: names[t.tid] for t in tiles_of(tracks)} == {
        "F 1": "rank 0 compute",
        "W 0": "rank 0 compute 2",
        "W 1": "rank 0 compute",
    }


def test_waits_have_a_track_of_their_own() -> None:
    tracks = Tracks([("measured", slow())])
    names = {t.tid: t.name for t in tracks.tracks}
    waits = [t for t in slices(tracks) if names[t.tid] == "waits"]
    assert waits
    assert all(t.category == "wait" and t.name.startswith("WAIT RECV_") for t in waits)
    assert all(t.args["duration_ns"] == t.end - t.start for t in waits)


def test_names_carry_the_stage_where_a_rank_has_several() -> None:
    tiles = [
        Tile(Action(Kind.F, 0, 3), 0, Lane.COMPUTE, 0, 5),
        Tile(Action(Kind.F, 3, 3), 0, Lane.COMPUTE, 5, 9),
        Tile(Pair(Action(Kind.F, 0, 4), Action(Kind.B, 3, 1)), 0, Lane.COMPUTE, 9, 15),
        Tile(Action(Kind.F, 1, 7, 1), 0, Lane.COMPUTE, 15, 16),
        Tile(Action(Kind.OPTIM, 3), 0, Lane.COMPUTE, 16, 17),
        Tile(Action(Kind.F, 0, 5, 0, 2, pipetrace.Part.DISPATCH), 0, Lane.ALL_TO_ALL, 16, 17),
    ]
    found = list(tiles_of(Tracks([("x", Timeline.from_tiles(1, tiles))])))
    assert [t.name for t in found] == [
        "F 3 s0",
        "F 3 s3",
        "F 4 s0 & B 1 s3",
        "F 7 s1 d1",
        "OPTIM s3",
        "F dispatch 5 l2 s0",
    ]
    assert found[2].args["backward_stage"] == 3
    assert "microbatch" not in found[4].args


def test_pairs_match_apart_by_halves() -> None:
    apart = [
        Tile(Action(Kind.F, 0, 1), 0, Lane.COMPUTE, 0, 5),
        Tile(Action(Kind.B, 0, 0), 0, Lane.COMPUTE, 5, 15),
    ]
    pair = Tile(Pair(Action(Kind.F, 0, 1), Action(Kind.B, 0, 0)), 0, Lane.COMPUTE, 0, 12)
    tracks = Tracks([("ideal", Timeline.from_tiles(1, apart)), ("measured", Timeline.from_tiles(1, [pair]))])
    forward, _, both = tiles_of(tracks)
    assert both.args["ideal_start_ns"] == forward.start
    # Half a tile's end says nothing about the whole tile's.
    assert "slip_ns" not in both.args


def test_one_or_two_timelines() -> None:
    for wrong in ([], [("a", ideal())] * 3):
        with pytest.raises(ValueError, match="one or two"):
            Tracks(wrong)


def test_replicas_are_processes_of_their_own() -> None:
    tiles = [Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 0, 5 + r, replica=r) for r in range(2)]
    tracks = Tracks([("x", Timeline.from_tiles(1, tiles, replicas=2))])
    assert [p.name for p in tracks.processes] == ["replica 0 rank 0", "replica 1 rank 0", "all ranks"]
    assert [(t.pid, t.args["replica"]) for t in tiles_of(tracks)] == [(1, 0), (2, 1)]


TILES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([Kind.F, Kind.B, Kind.SEND_F, Kind.RECV_B]),
        st.integers(0, 2),
        st.integers(0, 3),
        st.integers(-20, 30),
        st.integers(-2, 12),
        st.one_of(st.none(), st.integers(-20, 30)),
    ),
    max_size=25,
)


def timeline_of(drawn: list[tuple[int, Kind, int, int, int, int, int | None]]) -> Timeline:
    lanes = {Kind.SEND_F: Lane.SEND, Kind.RECV_B: Lane.RECV}
    return Timeline.from_tiles(
        3,
        [
            Tile(Action(kind, stage, mb), rank, lanes.get(kind, Lane.COMPUTE), start, start + length, waited=waited)
            for rank, kind, stage, mb, start, length, waited in drawn
        ],
    )


@given(st.lists(TILES, min_size=1, max_size=2))
@settings(deadline=None)
def test_what_viewers_demand_holds_for_any_tiles(
    drawn: list[list[tuple[int, Kind, int, int, int, int, int | None]]],
) -> None:
    tracks = Tracks([(str(i), timeline_of(tiles)) for i, tiles in enumerate(drawn)])
    tids, pids = [t.tid for t in tracks.tracks], [p.pid for p in tracks.processes]
    assert len(set(tids + pids)) == len(tids) + len(pids)
    assert min(pids) >= 1
    ends: dict[int, list[int]] = defaultdict(list)
    for line in by_track(tracks).values():
        for before, after in pairwise(line):
            assert max(before.end, before.start + 1) <= after.start
        for tile in line:
            assert 0 <= tile.start <= tile.end
            for end in tile.leaves:
                assert tile.start <= end.at < max(tile.end, tile.start + 1)
                ends[end.id].append(end.at)
    for tile in slices(tracks):
        for end in tile.arrives:
            assert tile.start <= end.at < max(tile.end, tile.start + 1)
            ends[end.id].append(end.at)
    assert len(ends) == tracks.arrows
    assert all(len(times) == 2 and times[0] < times[1] for times in ends.values())
    assert all((c.series.value >= 0).all() for c in tracks.counters if c.name != "drift")
