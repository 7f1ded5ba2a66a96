"""What an analysis tells beside its faults."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings

from pipetrace.action import Action, parse_action
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, diff
from pipetrace.diff.contrast import overlapped_against_alone, stage_balance
from pipetrace.diff.document import document, slip_parts
from pipetrace.diff.fault import FaultKind
from pipetrace.diff.reference import balanced_costs, makes_no_gradient, typical_costs
from pipetrace.fit import fit_costs
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.waiting import Wait, Waiting
from tests.diff.cases import two_costs

MS = 1_000_000
COSTS = Costs(StageCosts(10 * MS, 12 * MS, 8 * MS), p2p=200_000)


def slow_rank(name: str = "1f1b", *, fitted: bool = False) -> Analysis:
    """Rank 2 of four takes half as long again."""
    schedule = build(name, 4, 8)
    held = [stage for stage in range(schedule.stages) if schedule.placement.rank(stage) == 2]
    slow = Costs(COSTS.default, {stage: StageCosts(15 * MS, 18 * MS, 12 * MS) for stage in held}, p2p=200_000)
    measured = simulate(schedule, slow)
    costs = typical_costs(fit_costs([measured])) if fitted else COSTS
    return Analysis(diff(simulate(schedule, costs), measured), schedule, costs, fitted=fitted, steps=[measured])


@settings(max_examples=15)
@given(two_costs())
def test_a_step_against_itself_is_zero_everywhere(case: tuple[Schedule, Costs, Costs]) -> None:
    schedule, costs, _ = case
    timeline = simulate(schedule, costs)
    of = Analysis(diff(timeline, timeline), schedule, costs)
    assert not any(bar.size for bar in of.waterfall.bars)
    assert of.waterfall.residual == of.waterfall.deviation == 0
    assert not of.slips.slip.any()
    assert of.found.faults == ()
    assert of.clocks is None
    if not schedule.partner.any():  # when a pair let go of what it made only costs tell, and for a measured one none do
        assert of.waits[0] == of.waits[1]
    assert of.paths.parts_at is None


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv", "interleaved", "dualpipev"])
@pytest.mark.parametrize("fitted", [False, True])
def test_a_slow_rank_is_named_whatever_the_costs_are_from(name: str, fitted: bool) -> None:
    of = slow_rank(name, fitted=fitted)
    fault = of.found.faults[0]
    assert "rank 2" in fault.names
    assert fault.amount == pytest.approx(1.5, rel=0.001)
    clean = simulate(of.schedule, COSTS).makespan
    assert fault.effect == pytest.approx(of.of.measured.makespan - clean, rel=0.001)
    assert of.waterfall.by == "rank"
    assert max(of.waterfall.bars, key=lambda bar: bar.size).group == 2
    assert of.what_if[0].name in ("rank 2 healthy", "stage 2 healthy")


@pytest.mark.parametrize("waiting", [Waiting(Wait.INLINE), Waiting(Wait.DATAFLOW)])
def test_how_the_ranks_wait_is_part_of_the_ideal(waiting: Waiting) -> None:
    schedule = build("zb-h1", 4, 8)
    timeline = simulate(schedule, COSTS, waiting)
    of = Analysis(diff(timeline, timeline), schedule, COSTS, waiting=waiting)
    assert of.waterfall.base == timeline.makespan
    assert not any(bar.size for bar in of.waterfall.bars)
    assert of.found.faults == ()


@pytest.mark.parametrize("told", [False, True])
def test_receives_at_their_use_are_late_only_where_they_are_meant_to_be_ahead(told: bool) -> None:
    schedule = build("zb-h1", 4, 8)
    free = Costs(COSTS.default)
    timeline = simulate(schedule, Costs(COSTS.default, p2p=3 * MS), Waiting(Wait.INLINE))
    waiting = Waiting() if told else Waiting(Wait.INLINE)
    of = Analysis(diff(simulate(schedule, free, waiting), timeline), schedule, free, waiting=waiting)
    assert any(fault.kind is FaultKind.RECEIVE for fault in of.found.faults) is told


def test_two_measured_steps() -> None:
    after = slow_rank()
    schedule = after.schedule
    before = simulate(schedule, COSTS)
    of = Analysis(
        diff(before, after.of.measured), schedule, fit_costs([before]), steps=[after.of.measured], before=True
    )
    assert of.waterfall.base == before.makespan
    assert "rank 2" in of.found.faults[0].names
    back = Analysis(diff(after.of.measured, before), schedule, fit_costs([after.of.measured]), before=True)
    assert back.found.faults[0].amount == pytest.approx(2 / 3, rel=0.001)
    assert back.found.faults[0].effect < 0


def test_the_step_comes_apart_into_work_schedule_imbalance_and_overhead() -> None:
    of = slow_rank(fitted=True)
    ref = of.references
    assert ref is not None
    assert ref.work + ref.schedule + ref.imbalance + ref.overhead == ref.measured == of.of.measured.makespan
    assert ref.given is None
    assert ref.work == 8 * (3 * 30 + 45) * MS // 4
    assert ref.imbalance > 0
    assert 0 <= ref.overhead < 5 * MS  # the transfers
    even = Analysis(of.of, of.schedule, COSTS, steps=[simulate(of.schedule, COSTS)]).references
    assert even is not None
    assert even.imbalance == 0
    assert even.given == simulate(of.schedule, COSTS).makespan


def test_a_first_stage_without_an_input_gradient_is_no_slow_one() -> None:
    """torch's stage 0 has nothing to do in I and the whole backward in W."""
    stages = {stage: StageCosts(10, 12, 8) for stage in range(4)} | {0: StageCosts(10, 1, 19)}
    fitted = Costs(stages=stages)
    assert makes_no_gradient(fitted)
    assert typical_costs(fitted).of(0) == StageCosts(10, 1, 19)
    assert typical_costs(fitted).of(2) == balanced_costs(fitted).of(2) == StageCosts(10, 12, 8)
    assert not makes_no_gradient(Costs(stages={stage: StageCosts(10, 12, 8) for stage in range(4)}))
    schedule = build("zb-h1", 4, 8)
    measured = simulate(schedule, fitted)
    costs = typical_costs(fit_costs([measured]))
    of = Analysis(diff(simulate(schedule, costs), measured), schedule, costs, fitted=True)
    assert of.found.faults == ()


def test_what_if_rows_are_replays() -> None:
    of = slow_rank("zb-h1")
    rows = {row.name: row for row in of.what_if}
    clean = simulate(of.schedule, COSTS).makespan
    assert rows["rank 2 healthy"].makespan == clean
    assert rows["rank 2 healthy"].saved == of.of.measured.makespan - clean
    free = Costs(COSTS.default, {2: StageCosts(15 * MS, 18 * MS, 12 * MS)})
    assert rows["P2P free"].makespan == simulate(of.schedule, free).makespan
    assert rows["rank 0 healthy"].saved == rows["no host gaps"].saved == 0
    even = Costs(StageCosts(*(round(1.125 * ns) for ns in (10 * MS, 12 * MS, 8 * MS))), p2p=200_000)
    assert rows["stages balanced"].makespan == simulate(of.schedule, even).makespan


def test_other_schedules_run_the_same_model() -> None:
    of = slow_rank("1f1b", fitted=True)
    rows = {row.name: row for row in of.other_schedules}
    assert "1f1b" not in rows
    mean = StageCosts(F=round(11.25 * MS), I=0, W=0, B=round(22.5 * MS))
    assert rows["gpipe"].makespan == simulate(build("gpipe", 4, 8), Costs(mean)).makespan
    assert rows["interleaved"].makespan < simulate(build("1f1b", 4, 8), Costs(mean)).makespan
    # Of a backward that ran whole the halves are assumed, not free: no rank's whole work takes less.
    (assumed,) = of.assumed
    assert assumed.startswith("the backward was measured whole")
    work = 8 * round(11.25 * MS + 22.5 * MS)
    assert {"zb-h1", "zbv"} <= set(rows)
    assert all(row.makespan >= work for name, row in rows.items() if not name.startswith("m = "))
    assert rows["m = 16, per microbatch"].saved > 0 > rows["m = 4, per microbatch"].saved


def test_paths_part_where_the_slow_rank_takes_over() -> None:
    paths = slow_rank().paths
    assert paths.parts_at is not None
    for path, time in ((paths.ideal, paths.ideal_time), (paths.measured, paths.measured_time)):
        assert sum(time.values()) == path[-1].end - path[0].start + path[0].delay
    assert paths.measured_time["rank 2"] > paths.ideal_time["rank 2"]


def test_stages_are_balanced_or_not() -> None:
    schedule = build("1f1b", 4, 8)
    head = Costs(COSTS.default, {3: StageCosts(15 * MS, 18 * MS, 12 * MS)})
    shares = stage_balance([simulate(schedule, head)])
    assert [share.stage for share in shares] == [0, 1, 2, 3]
    assert shares[3].total == 45 * MS
    assert shares[3].ratio == pytest.approx(45 / 33.75)
    assert stage_balance([]) == []


def test_the_same_action_beside_a_transfer_and_alone() -> None:
    tiles = []
    for i in range(8):
        begin, beside = 100 * i, i % 2 == 0
        tiles.append(Tile(_action("F", i), 0, Lane.COMPUTE, begin, begin + (60 if beside else 40)))
        if beside:
            tiles.append(Tile(_action("SEND_F", i), 0, Lane.SEND, begin, begin + 50))
    (row,) = overlapped_against_alone([Timeline.from_tiles(1, tiles)])
    assert (row.stage, row.kind, row.overlapped, row.alone, row.counts) == (0, "F", 60, 40, (4, 4))
    assert row.ratio == 1.5
    assert overlapped_against_alone([Timeline.from_tiles(1, tiles[:4])]) == []


def _action(kind: str, microbatch: int) -> Action:
    return parse_action(f"0{kind}{microbatch}")


def test_the_document_is_plain_and_says_what_the_parts_say() -> None:
    of = slow_rank("zb-h1")
    table = json.loads(json.dumps(document(of)))
    fall = table["waterfall"]
    assert fall["base_ns"] + sum(bar["size_ns"] for bar in fall["bars"]) + fall["residual_ns"] == fall["measured_ns"]
    for rank in table["waiting"]["measured"]:
        idle = sum(ns for key, ns in rank.items() if key.endswith("_ns") and key != "busy_ns")
        assert rank["busy_ns"] + idle == fall["measured_ns"]
    assert table["faults"][0]["names"] == ["rank 2", "stage 2"]
    parts = slip_parts(of)
    assert len(parts) == len(of.schedule)
    slip = dict(zip((str(code) for code in of.of.code.tolist()), of.of.slip.tolist(), strict=True))
    total = sum(
        part["growth_ns"] + part["predecessor_slip_ns"] + part["transfer_ns"] + part["gap_ns"] - part["slack_ns"]
        for part in parts.values()
    )
    assert total == sum(slip.values())


def test_without_one_clock_only_ranks_by_themselves_are_told() -> None:
    of = slow_rank()
    alone = Analysis(of.of, of.schedule, COSTS, one_clock=False)
    assert set(document(alone)) == {"stages"}
    assert np.isfinite(document(alone)["stages"][2]["ratio"])
