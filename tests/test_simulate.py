from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pipetrace.action import Action, Kind, Pair, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts, parse_costs
from pipetrace.errors import DeadlockError
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Timeline
from tests.strategies import costs, sizes
from tests.test_schedule import of

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "golden_values.json").read_text())
NAMES = {"GPipe-fifo": "gpipe", "1F1B": "1f1b", "ZB-H1": "zb-h1"}


def costs_of(key: str) -> Costs:
    """The costs that a key like `F10_I12_W8_comm1` names, in ns."""
    number = {word.rstrip("0123456789"): int(word.lstrip("FIWcom")) for word in key.split("_")}
    return Costs(StageCosts(number["F"], number["I"], number["W"]), p2p=number["comm"])


@pytest.mark.parametrize("key", GOLDEN)
def test_golden_times_and_peaks(key: str) -> None:
    golden = GOLDEN[key]
    schedule = build(NAMES[key.split("/")[1].partition("_")[0]], golden["p"], golden["m"])
    peak = peak_in_flight(schedule)
    assert list(peak.release_at_input_grad) == golden["peak_in_flight"]["release_at_input_grad"]
    assert list(peak.release_at_weight_grad) == golden["peak_in_flight"]["release_at_weight_grad"]
    for cost_key, values in golden["values"].items():
        idle = bubbles(simulate(schedule, costs_of(cost_key)))
        assert idle.makespan == values["makespan"], cost_key
        assert list(idle.global_idle) == values["idle"], cost_key
        assert list(idle.in_span_idle) == values["bubble_in_span"], cost_key


def at(timeline: Timeline, text: str) -> tuple[int, int]:
    tile = timeline.find(parse_action(text))
    assert tile is not None
    return tile.start, tile.end


@given(sizes(), costs())
def test_every_dependency_holds_and_no_lane_does_two_things(size: tuple[str, int, int], given: Costs) -> None:
    schedule = build(*size)
    timeline = simulate(schedule, given)
    last = schedule.stages - 1
    for tile in timeline:
        action = tile.action
        if tile.lane is not Lane.COMPUTE or isinstance(action, Pair):
            continue
        needs = {
            Kind.F: [(Kind.F, action.stage - 1)] if action.stage else [],
            Kind.B: [(Kind.F, action.stage), *([(Kind.B, action.stage + 1)] if action.stage < last else [])],
            Kind.I: [(Kind.F, action.stage), *([(Kind.I, action.stage + 1)] if action.stage < last else [])],
            Kind.W: [(Kind.I, action.stage)],
        }[action.kind]
        for kind, stage in needs:
            before = timeline.find(Action(kind, stage, action.microbatch))
            assert before is not None
            assert tile.start >= before.end + (given.p2p if before.rank != tile.rank else 0)
    for rank in range(schedule.ranks):
        mine = timeline.where(timeline.is_compute & (timeline.rank == rank))
        assert (mine.start[1:] >= mine.end[:-1]).all()
        if (mine.start[1:] > mine.start[:-1]).all():  # tiles of no length share a start, and have no order in time
            assert mine.code.tolist() == schedule.code[schedule.rank == rank].tolist()


@given(sizes(), costs())
def test_the_makespan_is_no_shorter_than_any_rank_or_microbatch_takes(size: tuple[str, int, int], given: Costs) -> None:
    schedule = build(*size)
    timeline = simulate(schedule, given)
    durations = given.durations(schedule)
    work = [int(durations[schedule.rank == rank].sum()) for rank in range(schedule.ranks)]
    through = sum(given.of(stage).F for stage in range(schedule.stages)) + (schedule.ranks - 1) * given.p2p
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
