from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

from pipetrace.action import Action, Kind, Pair, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.costs_io import parse_costs
from pipetrace.errors import DeadlockError
from pipetrace.metrics import bubbles
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Tile, Timeline
from tests.strategies import Sizes, costs, sizes, within
from tests.test_schedule import of


def at(timeline: Timeline, text: str) -> tuple[int, int]:
    tile = timeline.find(parse_action(text))
    assert tile is not None
    return tile.start, tile.end


def halves(tile: Tile) -> list[Action]:
    return [tile.action.forward, tile.action.backward] if isinstance(tile.action, Pair) else [tile.action]


def ready(timeline: Timeline, action: Action, costs: Costs) -> tuple[int, int]:
    """The rank of an action, and when what it gives is there."""
    tile = timeline.find(action)
    assert tile is not None
    if not isinstance(tile.action, Pair) or not isinstance(costs.pair, PairCost):
        return tile.rank, tile.end
    offset = costs.pair.forward_ready if action.kind is Kind.F else costs.pair.backward_ready
    return tile.rank, tile.start + costs.of(tile.action.backward.stage).recompute + offset


@given(sizes(), costs(16))
def test_every_dependency_holds_and_no_lane_does_two_things(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    last = schedule.stages - 1
    transfer = given.transfer_times(*np.indices((schedule.ranks, schedule.ranks)))
    for tile in timeline.where(timeline.is_compute):
        for action in halves(tile):
            kind = action.kind
            needs = {
                Kind.F: [(Kind.F, action.stage - 1)] if action.stage else [],
                Kind.B: [(Kind.F, action.stage), *([(Kind.B, action.stage + 1)] if action.stage < last else [])],
                Kind.I: [(Kind.F, action.stage), *([(Kind.B, action.stage + 1)] if action.stage < last else [])],
                Kind.W: [(Kind.I, action.stage)],
            }[kind]
            for needed, stage in needs:
                before = Action(needed, stage, action.microbatch, action.pipe)
                if timeline.find(before) is None and needed is Kind.B:
                    before = Action(Kind.I, stage, action.microbatch, action.pipe)
                rank, at = ready(timeline, before, given)
                assert tile.start >= at + transfer[rank, tile.rank]
    for rank in range(schedule.ranks):
        mine = timeline.where(timeline.is_compute & (timeline.rank == rank))
        assert (mine.start[1:] >= mine.end[:-1]).all()
        if (mine.start[1:] > mine.start[:-1]).all():  # tiles of no length share a start, and have no order in time
            assert mine.code.tolist() == schedule.code[schedule.rank == rank].tolist()


@given(sizes(), costs(16))
def test_the_makespan_is_no_shorter_than_any_rank_or_microbatch_takes(size: Sizes, given: Costs) -> None:
    """A rank's work, pairs counted once; and a microbatch's way down, by release offsets."""
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    durations = given.durations(schedule)
    work = [int(durations[schedule.rank == rank].sum()) for rank in range(schedule.ranks)]
    at_least = given.pair.forward_ready if isinstance(given.pair, PairCost) else np.inf
    transfer = given.transfer_times(*np.indices((schedule.ranks, schedule.ranks)))
    hops = sum(int(transfer[a, b]) for a, b in itertools.pairwise(schedule.placement.table[0]))
    through = sum(min(given.of(stage).F, at_least) for stage in range(schedule.stages)) + hops
    assert timeline.makespan >= max(*work, through)
    assert list(bubbles(timeline).busy) == work


def test_a_transfer_is_two_tiles_between_ranks_and_none_within() -> None:
    timeline = simulate(build("1f1b", 2, 1), parse_costs("F=2", unit="ns", p2p=3))
    assert at(timeline, "0SEND_F0") == at(timeline, "1RECV_F0") == (2, 5)
    assert at(timeline, "1SEND_B0") == at(timeline, "0RECV_B0") == (9, 12)
    receive = timeline.find(parse_action("0RECV_B0"))
    assert receive is not None
    assert (receive.posted, receive.waited, receive.rank) == (0, 2, 0)
    assert at(timeline, "0B0") == (12, 14)
    assert len(simulate(build("1f1b", 1, 4), parse_costs("", p2p=3))) == 8


def test_a_receive_that_is_there_in_time_is_not_waited_for() -> None:
    timeline = simulate(build("1f1b", 2, 3), parse_costs("F=1,B=9", unit="ns", p2p=1))
    receive = timeline.find(parse_action("1RECV_F1"))
    assert receive is not None
    assert receive.waited is None


def test_free_transfers_leave_no_tiles() -> None:
    timeline = simulate(build("1f1b", 4, 8))
    assert len(timeline) == 64
    assert timeline.is_compute.all()


def test_a_pair_waits_for_both_inputs_and_releases_each_output_in_its_time() -> None:
    schedule = of("0F0 0F1 0B0 0B1 | 1F0 (1F1;1B0)OVERLAP_F_B 1B1", microbatches=2).validate()
    pair = PairCost(duration=5, forward_ready=3, backward_ready=4)
    timeline = simulate(schedule, Costs(StageCosts(1, 1, 1), pair=pair, p2p=10))
    assert at(timeline, "1F1") == at(timeline, "1B0") == (12, 17)
    assert at(timeline, "1SEND_B0") == (16, 26)
    assert at(timeline, "0B0") == (26, 28)
    assert len([tile for tile in timeline if isinstance(tile.action, Pair)]) == 1


def test_a_pair_costs_its_halves_unless_told() -> None:
    schedule = of("0F0 (0F1;0B0)OVERLAP_F_B 0B1", microbatches=2).validate()
    assert at(simulate(schedule, parse_costs("F=1,I=2,W=3", unit="ns")), "0F1") == (1, 7)


def test_stages_cost_what_they_cost() -> None:
    slow = Costs(StageCosts(1, 1, 1), stages={1: StageCosts(5, 1, 1)})
    assert at(simulate(build("gpipe", 2, 2), slow), "1F1") == (6, 11)


def test_deadlock_is_an_error() -> None:
    with pytest.raises(DeadlockError):
        simulate(of("0B0 0F0 | 1F0 1B0"))


def test_times_beyond_32_bits() -> None:
    timeline = simulate(build("1f1b", 4, 8), parse_costs("F=900,I=900,W=900", unit="s"))
    assert timeline.makespan == 33 * 900 * 10**9
    assert timeline.start.dtype == np.int64
