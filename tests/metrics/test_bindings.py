from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from pipetrace.action import NO_ACTION, Action, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.metrics.bindings import NO_TILE, Bindings, Need, Reason, bindings
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.strategies import Sizes, costs, sizes, within
from tests.test_schedule import of


def row_of(bound: Bindings, text: str) -> int:
    code = parse_action(text).code
    (row,) = np.flatnonzero((bound.tiles.code == code) | (bound.tiles.partner == code))
    return int(row)


def reason(bound: Bindings, text: str) -> tuple[Reason, str]:
    row = row_of(bound, text)
    before = int(bound.bound[row])
    return Reason(int(bound.reason[row])), "" if before == NO_TILE else str(
        Action.from_code(int(bound.tiles.code[before]))
    )


@given(sizes(), costs(16))
def test_in_an_ideal_every_action_starts_when_what_bound_it_was_there(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    bound = bindings(schedule, simulate(schedule, given), given)
    start = bound.tiles.start
    first = bound.reason == Reason.FIRST
    assert (start[first] == 0).all()
    by_rank = bound.reason == Reason.RANK
    other = ~first & ~by_rank
    assert (bound.left[by_rank] == start[by_rank]).all()
    assert (bound.tiles.end[bound.bound[by_rank]] == start[by_rank]).all()
    assert (bound.there[other] == start[other]).all()
    assert (bound.left <= start)[~first].all()
    assert (bound.left >= bound.tiles.start[bound.bound])[~first].all()


@pytest.mark.parametrize(("forward", "backward"), [(1500, 2500), (3000, 1000), (0, 0)])
@pytest.mark.parametrize("p2p", [0, 7])
def test_release_offsets_are_known_with_transfers_and_with_costs(forward: int, backward: int, p2p: int) -> None:
    """Both halves' outputs are used at once by the pairs beside: which came last cannot be told from tiles alone."""
    schedule = build("dualpipe", 4, 12)
    costs = Costs(StageCosts(1000, 1000, 1000), pair=PairCost(3000, forward, backward), p2p=p2p)
    bound = bindings(schedule, simulate(schedule, costs), None if p2p else costs)
    producer = bound.producer
    paired = (producer != NO_TILE) & (bound.tiles.partner[producer] != NO_ACTION)
    crosses = paired & (bound.tiles.rank[producer] != bound.tiles.rank)
    after = bound.ready - bound.tiles.start[producer]
    for need, offset in ((Need.INPUT, forward), (Need.GRADIENT, backward)):
        assert set(after[crosses & (bound.need == need)].tolist()) <= {offset}
    assert crosses.any()


def test_without_costs_a_pair_released_what_was_used_before_its_end() -> None:
    schedule = build("dualpipe", 4, 12)
    given = Costs(StageCosts(1000, 1000, 1000), pair=PairCost(3000, 1500, 2500))
    bound = bindings(schedule, simulate(schedule, given))
    other = (bound.reason != Reason.FIRST) & (bound.reason != Reason.RANK)
    assert (bound.there[other] == bound.tiles.start[other]).all()


TWO = of("0F0 0F1 0B0 0B1 | 1F0 1F1 1B0 1B1", microbatches=2)


def measured(*rows: tuple[str, int, int, int], waits: tuple[tuple[str, int, int, int, int], ...] = ()) -> Timeline:
    """Tiles of (text, rank, start, end); receives of (text, rank, posted, start, end)."""
    tiles = [Tile(parse_action(text), rank, Lane.COMPUTE, start, end) for text, rank, start, end in rows]
    tiles += [
        Tile(parse_action(text), rank, Lane.RECV, start, end, posted=posted, waited=end - 1)
        for text, rank, posted, start, end in waits
    ]
    return Timeline.from_tiles(2, tiles, epoch=1_700_000_000_000_000_000)


def test_a_wait_for_what_was_long_there_is_no_wait() -> None:
    """1F1's receive was measured until 31, when it was asked for; 1F0's took 2 ns, so 1F1's was there at 22."""
    timeline = measured(
        ("0F0", 0, 0, 10),
        ("0F1", 0, 10, 20),
        ("1F0", 1, 12, 30),
        ("1F1", 1, 32, 40),
        waits=(("1RECV_F0", 1, 0, 10, 12), ("1RECV_F1", 1, 0, 20, 31)),
    )
    bound = bindings(TWO, timeline)
    assert reason(bound, "1F0") == (Reason.INPUT, "0F0")
    assert reason(bound, "1F1") == (Reason.RANK, "1F0")
    assert bound.left[row_of(bound, "1F1")] == 30


def test_a_slow_transfer_is_a_wait() -> None:
    timeline = measured(
        ("0F0", 0, 0, 10),
        ("0F1", 0, 10, 20),
        ("1F0", 1, 25, 30),
        ("1F1", 1, 36, 40),
        waits=(("1RECV_F0", 1, 0, 10, 25), ("1RECV_F1", 1, 0, 20, 35)),
    )
    bound = bindings(TWO, timeline)
    row = row_of(bound, "1F1")
    assert reason(bound, "1F1") == (Reason.INPUT, "0F1")
    assert (bound.ready[row], bound.there[row], bound.tiles.start[row]) == (20, 35, 36)


def test_a_receive_that_is_posted_late_waits_for_the_receiver() -> None:
    """As with inline waiting: 0F1 is made at 20, but rank 1 asks for it at 30 only."""
    timeline = measured(
        ("0F0", 0, 0, 10),
        ("0F1", 0, 10, 20),
        ("1F0", 1, 15, 29),
        ("1F1", 1, 35, 40),
        waits=(("1RECV_F0", 1, 0, 10, 15), ("1RECV_F1", 1, 30, 30, 35)),
    )
    bound = bindings(TWO, timeline)
    row = row_of(bound, "1F1")
    assert reason(bound, "1F1") == (Reason.POSTED, "1F0")
    assert (bound.left[row], bound.sent[row], bound.there[row]) == (29, 30, 35)


def test_clocks_that_run_apart_tell_nothing_impossible() -> None:
    timeline = measured(("0F0", 0, 50, 60), ("0F1", 0, 60, 70), ("1F0", 1, 0, 10), ("1F1", 1, 65, 75))
    bound = bindings(TWO, timeline)
    assert reason(bound, "1F0") == (Reason.FIRST, "")
    assert reason(bound, "1F1") == (Reason.INPUT, "0F1")
    # It seems to end after its consumer started.
    assert bound.left[row_of(bound, "1F1")] == 65


def test_halves_that_ran_apart_and_actions_that_are_not_there() -> None:
    schedule = build("dualpipev", 2, 4)
    given = Costs(StageCosts(2, 2, 2))
    ideal = simulate(schedule, given)
    tiles = []
    for tile in ideal:
        if tile.action == Action.from_code(int(schedule.code[0])):
            continue  # the very first forward was not recorded
        action = tile.action
        if isinstance(action, Action):
            tiles.append(tile)
            continue
        middle = tile.start + 2
        tiles.append(Tile(action.forward, tile.rank, tile.lane, tile.start, middle))
        tiles.append(Tile(action.backward, tile.rank, tile.lane, middle, tile.end))
    bound = bindings(schedule, Timeline.from_tiles(2, tiles))
    assert len(bound.tiles) == len(tiles)
    first = np.flatnonzero(bound.reason == Reason.FIRST)
    assert set(bound.tiles.start[first].tolist()) <= {0, 2}
    assert (bound.left <= bound.tiles.start)[bound.reason != Reason.FIRST].all()


def test_what_ran_on_another_lane_is_waited_for() -> None:
    timeline = Timeline.from_tiles(
        2,
        [
            Tile(parse_action("0F0"), 0, Lane.ALL_TO_ALL, 0, 10),
            Tile(parse_action("0B0"), 0, Lane.COMPUTE, 10, 20),
        ],
    )
    assert reason(bindings(TWO, timeline), "0B0") == (Reason.LOCAL, "0F0")


def test_of_an_empty_timeline() -> None:
    assert len(bindings(TWO, Timeline.from_tiles(2, [])).bound) == 0
