"""Ways of waiting, played event by event."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import Kind, code_kind, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.costs_io import parse_costs
from pipetrace.errors import CostError, DeadlockError
from pipetrace.metrics import peak_in_flight
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, costs, sizes, within
from tests.test_schedule import of

INLINE, DATAFLOW = Waiting(Wait.INLINE), Waiting(Wait.DATAFLOW)


def at(timeline: Timeline, text: str) -> tuple[int, int]:
    tile = timeline.find(parse_action(text))
    assert tile is not None
    return tile.start, tile.end


def same(a: Timeline, b: Timeline) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("rank", "code", "start", "end", "posted")
    )


@given(sizes(), costs(16))
def test_receives_posted_ahead_in_list_order_are_the_longest_path(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    path = simulate(schedule, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["pipetrace.simulate"], "_is_longest_path", lambda *_: False)
        played = simulate(schedule, given)
    assert same(played, path)
    assert np.array_equal(played.waited, path.waited)


@given(sizes(), costs(16))
def test_dataflow_without_reordering_is_list_order(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    assert same(simulate(schedule, given, Waiting(Wait.DATAFLOW, reorder=False)), simulate(schedule, given))


@given(sizes(), costs(16))
def test_posting_late_never_helps(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    late, ahead = simulate(schedule, given, INLINE), simulate(schedule, given)
    rows = np.argsort(late.code[late.is_compute]), np.argsort(ahead.code[ahead.is_compute])
    assert (late.start[late.is_compute][rows[0]] >= ahead.start[ahead.is_compute][rows[1]]).all()


@given(sizes(), costs(16))
def test_where_transfers_are_free_it_does_not_matter_when_they_are_posted(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    free = Costs(given.default, given.stages, given.pair)
    assert same(simulate(schedule, free, INLINE), simulate(schedule, free))


@given(sizes(), costs(16))
@settings(max_examples=60)
def test_dataflow_does_everything_within_the_memory_of_the_list(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given, DATAFLOW)
    assert sorted(timeline.code[timeline.is_compute].tolist()) == sorted(schedule.code.tolist())
    peaks = peak_in_flight(schedule).release_at_weight_grad
    for rank in range(schedule.ranks):
        mine = timeline.where(timeline.is_compute & (timeline.rank == rank))
        assert (mine.start[1:] >= mine.end[:-1]).all()
        if (mine.end > mine.start).all():
            kind, partner = code_kind(mine.code), code_kind(mine.partner)
            held = np.cumsum(kind == Kind.F)
            freed = np.cumsum((kind == Kind.B) | (kind == Kind.W) | (partner == Kind.B))
            assert (held - np.concatenate([[0], freed[:-1]])).max() <= peaks[rank]


def test_dataflow_overtakes_what_is_late() -> None:
    """While 1F1 has not come, 1W0 is ready and runs first."""
    schedule = of("0F0 0F1 0I0 0W0 0I1 0W1 | 1F0 1I0 1F1 1W0 1I1 1W1", microbatches=2).validate()
    given = Costs(StageCosts(2, 1, 2), stages={0: StageCosts(10, 1, 1)})
    in_order, reordered = simulate(schedule, given), simulate(schedule, given, DATAFLOW)
    assert (at(in_order, "1F1"), at(in_order, "1W0")) == ((20, 22), (22, 24))
    assert (at(reordered, "1F1"), at(reordered, "1W0")) == ((20, 22), (13, 15))


def test_going_out_of_order_can_be_slower() -> None:
    """A weight gradient that starts just before an awaited forward arrives delays it and all that hangs on it."""
    schedule = build("zb-h1", 2, 3)
    given = Costs(stages={0: StageCosts(2, 3, 8), 1: StageCosts(9, 1, 6)}, p2p=2)
    assert simulate(schedule, given).makespan == 54
    assert simulate(schedule, given, DATAFLOW).makespan == 59


def test_inline_starts_the_transfer_at_its_use() -> None:
    schedule = build("1f1b", 2, 2)
    given = parse_costs("F=2,B=6", unit="ns", p2p=3)
    timeline = simulate(schedule, given, INLINE)
    # 1F1 was ready to leave at 4; its receive is posted when rank 1 comes to it, after 1B0.
    assert at(timeline, "1B0") == (7, 13)
    assert at(timeline, "1RECV_F1") == (13, 16)
    receive = timeline.find(parse_action("1RECV_F1"))
    assert receive is not None
    assert (receive.posted, receive.waited) == (13, 13)
    send = timeline.find(parse_action("0SEND_F1"))
    assert send is not None
    assert send.posted == 4


def test_every_post_takes_the_lane() -> None:
    schedule = build("1f1b", 2, 1)
    timeline = simulate(schedule, parse_costs("F=10,B=10", unit="ns", p2p=5), Waiting(post=2))
    # Rank 0 posts one receive, runs, posts its send; rank 1 likewise.
    assert at(timeline, "0F0") == (2, 12)
    assert at(timeline, "0SEND_F0") == (14, 19)
    assert at(timeline, "1F0") == (19, 29)
    assert at(timeline, "1B0") == (29, 39)
    assert at(timeline, "1SEND_B0") == (41, 46)
    assert at(timeline, "0B0") == (46, 56)


def test_a_spinning_receive_slows_what_runs_beside_it() -> None:
    schedule = build("1f1b", 2, 1)
    timeline = simulate(schedule, parse_costs("F=10,B=10", unit="ns"), Waiting(spin=0.5))
    # The gradient's receive spins on rank 0 all the while; on rank 1 nothing spins beside 1B0.
    assert at(timeline, "0F0") == (0, 15)
    assert at(timeline, "1F0") == (15, 25)
    assert at(timeline, "1B0") == (25, 35)
    assert at(timeline, "0B0") == (35, 45)


def test_what_stops_spinning_slows_no_longer() -> None:
    schedule = of("0F0 0F1 0B0 0B1 | 1F0 1F1 1B0 1B1", microbatches=2).validate()
    given = Costs(stages={0: StageCosts(10, 10, 0), 1: StageCosts(30, 10, 0)})
    timeline = simulate(schedule, given, Waiting(spin=1.0))
    # 1F0 runs from 20 on at half speed until F1 arrives at 40, with 20 of its 30 left.
    assert at(timeline, "0F1") == (20, 40)
    assert at(timeline, "1F0") == (20, 60)


@given(sizes(), costs(16), st.integers(0, 10**5), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from(list(Wait)))
@settings(max_examples=60)
def test_posts_and_spinning_only_cost(size: Sizes, given: Costs, post: int, spin: float, policy: Wait) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given, Waiting(policy, reorder=False, post=post, spin=spin))
    assert timeline.makespan >= simulate(schedule, given, Waiting(policy, reorder=False)).makespan
    durations = given.durations(schedule)
    order = np.argsort(schedule.code), np.argsort(timeline.code[timeline.is_compute])
    grown = (timeline.end - timeline.start)[timeline.is_compute][order[1]] - durations[order[0]]
    assert (grown >= 0).all()
    assert (grown <= np.ceil(durations[order[0]] * spin) + 8).all()


def test_on_one_channel_receives_posted_ahead_block_the_sends() -> None:
    with pytest.raises(DeadlockError, match=r"rank 1 at 1F0 waits for 1RECV_F0 from rank 0, behind 0RECV_B0 on rank 0"):
        simulate(build("1f1b", 2, 2), parse_costs("", p2p=1), Waiting(ordered=True))


def test_on_one_channel_transfers_run_in_the_order_of_posting() -> None:
    schedule = build("gpipe", 2, 3)
    given = parse_costs("F=1,B=1", unit="ns", p2p=10)
    ordered = simulate(schedule, given, Waiting(Wait.INLINE, ordered=True))
    # One transfer at a time: the third forward's arrives 30 after the first one left, not 12.
    assert at(ordered, "1RECV_F2")[1] >= 31
    assert at(simulate(schedule, given), "1RECV_F2") == (3, 13)


def test_an_order_that_the_two_sides_do_not_share_hangs() -> None:
    """Rank 0 sends F1 before it takes B0, rank 1 sends B0 before it takes F1."""
    with pytest.raises(DeadlockError, match="--channel tagged") as error:
        simulate(build("1f1b", 2, 4), parse_costs("", p2p=1), Waiting(Wait.INLINE, ordered=True))
    assert "behind" in str(error.value)


def test_a_pair_lets_its_outputs_go_before_its_end_whatever_the_wait() -> None:
    schedule = of("0F0 0F1 0B0 0B1 | 1F0 (1F1;1B0)OVERLAP_F_B 1B1", microbatches=2).validate()
    given = Costs(StageCosts(1, 1, 1), pair=PairCost(duration=5, forward_ready=3, backward_ready=4), p2p=10)
    timeline = simulate(schedule, given, INLINE)
    assert at(timeline, "1F0") == (11, 12)
    assert at(timeline, "1F1") == (22, 27)
    assert at(timeline, "1SEND_B0") == (26, 36)
    assert at(simulate(schedule, given, DATAFLOW), "1SEND_B0") == (16, 26)


def test_a_deadlocked_list_is_one_here_too() -> None:
    broken = of("0B0 0F0 | 1F0 1B0")
    with pytest.raises(DeadlockError, match="rank 0 at 0B0 waits for"):
        simulate(broken, None, INLINE)


def test_caps_let_forwards_run_ahead() -> None:
    """1F1B's warm-up on rank 0 is two forwards; with room for more, those behind them need not wait."""
    schedule = build("1f1b", 2, 4)
    given = parse_costs("F=1,B=4", unit="ns")
    assert at(simulate(schedule, given, DATAFLOW), "0F2")[0] >= 7
    assert at(simulate(schedule, given, Waiting(Wait.DATAFLOW, caps=[4, 4])), "0F2") == (2, 3)


@pytest.mark.parametrize(("post", "spin"), [(-1, 0.0), (0, -0.1), (0, float("nan"))])
def test_costs_that_cannot_be(post: int, spin: float) -> None:
    with pytest.raises(CostError):
        Waiting(post=post, spin=spin)


def test_gradients_are_reduced_together_and_optimisers_follow() -> None:
    given = Costs(StageCosts(1, 1, 1, reduce_grad=5, optim=2))
    timeline = simulate(build("chimera", 2, 2), given)
    assert at(timeline, "0REDUCE_GRAD") == at(timeline, "d1:0REDUCE_GRAD")
    assert at(timeline, "1REDUCE_GRAD")[0] == at(timeline, "0REDUCE_GRAD")[1]
    assert at(timeline, "0OPTIM")[0] == at(timeline, "1REDUCE_GRAD")[1]
    assert timeline.makespan == simulate(build("chimera", 2, 2), Costs(StageCosts(1, 1, 1))).makespan
    plain = simulate(build("1f1b", 2, 2), given)
    assert at(plain, "1REDUCE_GRAD")[0] == at(plain, "1B1")[1]
    assert at(plain, "0REDUCE_GRAD")[0] == at(plain, "0B1")[1]


def test_recomputation_delays_the_input_gradient() -> None:
    schedule: Schedule = build("zb-h1", 2, 3)
    plain, recomputed = (simulate(schedule, Costs(StageCosts(2, 3, 4, recompute=r))) for r in (0, 2))
    assert at(recomputed, "1I0") == (at(plain, "1I0")[0], at(plain, "1I0")[1] + 2)
    assert at(recomputed, "1W0")[1] - at(recomputed, "1W0")[0] == 4
