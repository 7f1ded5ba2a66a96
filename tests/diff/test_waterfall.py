from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Action, Kind, Pair, code_kind, parse_action, with_kind
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff.analysis import Analysis
from pipetrace.diff.match import diff
from pipetrace.diff.observe import Observed, observe
from pipetrace.diff.waterfall import Part, Waterfall, waterfall
from pipetrace.diff.work import Work
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import UNKNOWN, Lane, Tile, Timeline
from pipetrace.waiting import Wait, Waiting
from tests.diff.cases import two_costs, waitings

MS = 1_000_000


def fall(schedule: Schedule, costs: Costs, measured: Timeline, by: str = "rank") -> tuple[Waterfall, Observed]:
    of = diff(simulate(schedule, costs), measured)
    work = Work.of(schedule, [of.measured])
    base = work.at(costs)
    seen = observe(work, of.measured, base)
    return waterfall(work, base, work.graph, seen, by), seen


def parts(of: Waterfall) -> dict[Part, int]:
    return {part: size for part in Part if (size := of.of(part))}


@given(two_costs(), waitings(), st.sampled_from(("rank", "stage")))
def test_it_sums_exactly_and_replaying_gives_the_step_back(
    case: tuple[Schedule, Costs, Costs], waiting: Waiting, by: str
) -> None:
    schedule, one, other = case
    measured = simulate(schedule, other, waiting)
    of, _ = fall(schedule, one, measured, by)
    assert of.base == simulate(schedule, one).makespan
    assert of.base + sum(bar.size for bar in of.bars) + of.residual == measured.makespan
    assert (of.residual, of.deviation, of.notes) == (0, 0, ())
    sizes = np.diff([of.base, *(bar.makespan for bar in of.bars)]).tolist()
    assert sizes == [bar.size for bar in of.bars]


@given(two_costs())
def test_a_step_has_no_waterfall_to_itself(case: tuple[Schedule, Costs, Costs]) -> None:
    schedule, costs, _ = case
    of, _ = fall(schedule, costs, simulate(schedule, costs))
    assert not any(bar.size for bar in of.bars)
    assert of.residual == 0


def test_each_part_has_its_bar() -> None:
    schedule, costs = build("1f1b", 4, 8), Costs(p2p=100_000)
    slow = Costs(stages={2: StageCosts(3 * MS // 2, MS, MS)}, p2p=100_000)
    of, _ = fall(schedule, costs, simulate(schedule, slow))
    assert list(parts(of)) == [Part.COMPUTE]
    assert [bar.group for bar in of.bars if bar.size] == [2]
    of, _ = fall(schedule, costs, simulate(schedule, Costs(p2p=400_000)))
    assert list(parts(of)) == [Part.TRANSFER]
    # A receive that is posted at its use starts late: the lane was blocked by what came before.
    of, _ = fall(schedule, costs, simulate(schedule, costs, Waiting(Wait.INLINE)))
    assert list(parts(of)) == [Part.POST]
    of, _ = fall(schedule, Costs(), simulate(schedule, Costs(), Waiting(Wait.INLINE, post=50_000)))
    assert set(parts(of)) <= {Part.POST, Part.GAP}
    assert of.of(Part.GAP) > 0


def swapped(schedule: Schedule, rank: int, at: int) -> Schedule:
    lists = [list(schedule.actions(of)) for of in range(schedule.ranks)]
    lists[rank][at], lists[rank][at + 1] = lists[rank][at + 1], lists[rank][at]
    return Schedule.from_actions("swapped", schedule.placement, schedule.microbatches, lists).validate()


def test_another_order_has_its_bar() -> None:
    schedule = build("zb-h1", 4, 8)
    # An I behind the F that follows it: what waits for its gradient waits longer.
    at = next(i for i, action in enumerate(schedule.actions(3)) if str(action) == "3I0")
    measured = simulate(swapped(schedule, 3, at + 1 if str(list(schedule.actions(3))[at + 1]) == "3W0" else at))
    of, _ = fall(schedule, Costs(), measured)
    assert set(parts(of)) <= {Part.ORDER}
    assert of.residual == 0


def test_missing_and_extra_work_come_last() -> None:
    schedule = build("zb-h1", 2, 4)
    ideal = simulate(schedule)
    gone = parse_action("0W3")
    last = max(tile.end for tile in ideal)
    extra = Tile(parse_action("0F9"), 0, Lane.COMPUTE, last + 5, last + 1_000_005)
    measured = Timeline.from_tiles(2, [*(tile for tile in ideal if tile.action != gone), extra])
    of, seen = fall(schedule, Costs(), measured)
    assert parts(of) == {Part.WORK: measured.makespan - ideal.makespan}
    assert of.residual == 0
    assert not seen.known[Work.of(schedule, []).rows_of.find(np.array([gone.code]))].any()


def test_a_rank_that_was_not_recorded_is_named() -> None:
    schedule = build("1f1b", 3, 4)
    slow = simulate(schedule, Costs(stages={2: StageCosts(2 * MS, MS, MS)}))
    of, seen = fall(schedule, Costs(), slow.where(slow.rank != 2))
    assert seen.recorded == (0, 1)
    assert set(parts(of)) == {Part.WORK}
    assert "rank 2, not recorded" in of.bars[-1].name
    assert of.residual == 0


def _halves(item: Action | Pair) -> tuple[Action, ...]:
    return (item.forward, item.backward) if isinstance(item, Pair) else (item,)


def test_halves_of_a_pair_that_ran_apart_and_the_other_way_round() -> None:
    together = build("dualpipev", 2, 6)
    lists: list[list[Action | Pair]] = [
        [half for item in together.actions(rank) for half in _halves(item)] for rank in range(2)
    ]
    apart = Schedule.from_actions("apart", together.placement, 6, lists)
    for one, other in ((together, apart), (apart, together)):
        measured = simulate(other)
        of, _ = fall(one, Costs(), measured)
        assert of.base + sum(bar.size for bar in of.bars) + of.residual == measured.makespan


def test_clocks_that_differ_leave_a_residual() -> None:
    schedule = build("1f1b", 2, 4)
    timeline = simulate(schedule, Costs(p2p=10))
    columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner", "start", "end")}
    late = np.where(timeline.rank == 0, 5_000, 0)
    skewed = Timeline.from_columns(2, columns | {"start": timeline.start + late, "end": timeline.end + late})
    of, seen = fall(schedule, Costs(p2p=10), skewed)
    assert seen.early.any()
    assert of.residual != 0
    assert of.deviation > 0
    assert of.base + sum(bar.size for bar in of.bars) + of.residual == skewed.makespan


def as_recorded(timeline: Timeline, wait: int) -> Timeline:
    """What a profiler would have seen: a receive ends when the wait for it has, which takes `wait` ns at least."""
    starts = dict(zip(timeline.code.tolist(), timeline.start.tolist(), strict=True))
    end, waited = timeline.end.copy(), timeline.waited.copy()
    for row in np.flatnonzero(timeline.lane == Lane.RECV).tolist():
        code = int(timeline.code[row])
        kinds = (Kind.F,) if code_kind(code) == Kind.RECV_F else (Kind.B, Kind.I)
        used = next(starts[with_kind(code, kind)] for kind in kinds if with_kind(code, kind) in starts)
        if used > end[row]:
            end[row], waited[row] = used, used - wait
    columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner", "start", "posted")}
    return Timeline.from_columns(timeline.ranks, columns | {"end": end, "waited": waited}, epoch=1_700_000_000 * 10**9)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv", "chimera"])
def test_waits_that_hide_an_arrival_do_not_lengthen_the_transfer(name: str) -> None:
    """Of what was there before it was waited for, the link's usual time counts."""
    schedule, costs = build(name, 4, 8), Costs(p2p=20_000)
    recorded = as_recorded(simulate(schedule, costs), 1_000)
    of, seen = fall(schedule, costs, recorded)
    assert of.base + sum(bar.size for bar in of.bars) + of.residual == recorded.makespan
    assert set(seen.inputs.time[seen.tracked].tolist()) == {20_000}
    assert (seen.tracked & ~seen.seen).any()
    assert (seen.tracked & seen.seen).any()


@pytest.mark.parametrize(("share", "told"), [(0.02, False), (0.5, True)])
def test_a_wait_that_is_short_for_how_long_ago_it_was_sent_tells_nothing(share: float, told: bool) -> None:
    """The host's pause in a wait for data that was there is longer than such waits are, but no slow transfer."""
    schedule = build("1f1b", 4, 8)
    costs = Costs(StageCosts(1_000_000, 1_000_000, 1_000_000), p2p=20_000)
    timeline = as_recorded(simulate(schedule, costs), 1_000)
    waited = timeline.waited.copy()
    receives = np.flatnonzero((timeline.lane == Lane.RECV) & (waited != UNKNOWN))
    late = timeline.end[receives] - timeline.start[receives]
    row = int(receives[np.argmax(late)])
    longest = int(late.max())
    assert longest > 1_000_000
    waited[row] = timeline.end[row] - round(share * longest)
    columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner", "start", "end", "posted")}
    measured = Timeline.from_columns(timeline.ranks, columns | {"waited": waited}, epoch=timeline.epoch)
    of = Analysis(diff(simulate(schedule, costs), measured), schedule, costs)
    t = int(np.flatnonzero(of.work.receive == timeline.code[row])[0])
    assert bool(of.seen.seen[t]) is told
    assert bool(of.seen.inputs.time[t] > 1_000_000) is told
    named = [name for fault in of.found.faults for name in fault.names if name.startswith("transfer ")]
    assert bool(named) is told


def test_refuses_costs_of_a_stage_that_is_not_there() -> None:
    with pytest.raises(Exception, match="stage 9"):
        Work.of(build("1f1b", 2, 2), []).at(Costs(stages={9: StageCosts(1, 1, 1)}))
