"""Idle time with its causes, phases and waits, as slices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pipetrace
from pipetrace.metrics import Cause, bubbles, gaps, phases
from pipetrace.timeline import Timeline
from pipetrace.trace import marks
from pipetrace.trace.formats import write_trace
from pipetrace.trace.marks import idle_marks, phase_marks
from pipetrace.trace.tracks import Tracks
from tests.trace.processor import query
from tests.trace.shown import slices

COSTS = pipetrace.parse_costs("F=1,I=1.2,W=0.7", p2p=300_000)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv", "chimera", "dualpipe"])
def test_idle_slices_are_the_gaps_named_with_their_causes(name: str) -> None:
    schedule = pipetrace.build(name, 4, 8)
    timeline = pipetrace.simulate(schedule, COSTS)
    expected = gaps(schedule, timeline, costs=COSTS)
    shown = [tile for tile in slices(Tracks([("ideal", timeline)], schedule, COSTS)) if tile.category == "idle"]
    assert [(t.pid - 1, t.start, t.end) for t in shown] == [(g.rank, g.start, g.end) for g in expected]
    for tile, gap in zip(shown, expected, strict=True):
        assert tile.args["cause"] == gap.cause.value
        assert tile.args["why"] == str(gap)
        assert tile.args.get("awaits") == (None if gap.awaits is None else str(gap.awaits))
        assert tile.args.get("before") == (None if gap.action_after is None else str(gap.action_after))
        if gap.awaits is not None:
            awaited = f"{gap.awaits.kind.name} {gap.awaits.microbatch} of stage {gap.awaits.stage}"
            awaited += f" of pipe {gap.awaits.pipe}" if gap.awaits.pipe else ""
            begin = {Cause.TRANSFER: "transfer of ", Cause.LOCAL: "waits for its own "}.get(gap.cause, "waits for ")
            assert tile.name == begin + awaited
        else:
            assert tile.name in ("nothing yet", "nothing left", "host is late")
    idle = np.zeros(4, dtype=np.int64)
    np.add.at(idle, [t.pid - 1 for t in shown], [t.end - t.start for t in shown])
    assert tuple(idle.tolist()) == bubbles(timeline).global_idle


def test_many_gaps_are_named_and_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = pipetrace.build("1f1b", 4, 8)
    timeline = pipetrace.simulate(schedule, COSTS)
    monkeypatch.setattr(marks, "MOST_EXPLAINED", 3)
    shown = [tile for tile in slices(Tracks([("ideal", timeline)], schedule, COSTS)) if tile.category == "idle"]
    assert len(shown) > 3
    assert all("why" not in tile.args for tile in shown)
    assert shown[0].name == "waits for B 0 of stage 1"


def test_phases_follow_each_other() -> None:
    schedule = pipetrace.build("zb-h1", 4, 8)
    timeline = pipetrace.simulate(schedule, COSTS)
    of = phases(timeline)
    shown = [tile for tile in slices(Tracks([("ideal", timeline)])) if tile.category == "phase"]
    assert [t.name for t in shown] == ["warm-up", "steady", "drain"] * 4
    for rank in range(4):
        warm_up, steady, drain = shown[3 * rank : 3 * rank + 3]
        assert (warm_up.start, drain.end) == timeline.span
        assert warm_up.end == steady.start == of.steady_start[rank]
        assert steady.end == drain.start == of.drain_start[rank]
        assert steady.args["idle_ns"] == of.global_idle.steady[rank]


def test_every_replica_has_its_own() -> None:
    schedule = pipetrace.build("1f1b", 2, 3)
    one = pipetrace.simulate(schedule, COSTS)
    columns = {name: getattr(one, name) for name in ("rank", "code", "lane", "posted", "waited")}
    both = {name: np.concatenate([column, column]) for name, column in columns.items()}
    both["start"] = np.concatenate([one.start, one.start + 5_000])
    both["end"] = np.concatenate([one.end, one.end + 5_000])
    both["replica"] = np.repeat([0, 1], len(one))
    timeline = Timeline.from_columns(2, both, replicas=2)
    assert len(phase_marks(timeline)) == 2 * len(phase_marks(one))
    (alone,) = idle_marks(schedule, one, COSTS)
    for replica, of in enumerate(idle_marks(schedule, timeline, COSTS)):
        assert (of.process - 2 * replica).tolist() == alone.process.tolist()
        assert (of.end - of.start).tolist() == (alone.end - alone.start).tolist()


def test_nothing_has_no_marks() -> None:
    empty = Timeline.from_tiles(2, [])
    schedule = pipetrace.build("1f1b", 2, 3)
    assert len(phase_marks(empty)) == 0
    assert [len(of) for of in idle_marks(schedule, empty, None)] == [0]


def test_what_waits_for_nothing_known_is_written_well(tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 2, 3)
    timeline = pipetrace.simulate(schedule, COSTS)
    # Later than everything that it needs, as a host may be.
    late = timeline.where(timeline.rank == 0)
    write_trace(tmp_path / "x.json", [("measured", late.shifted(7))], schedule=schedule)
    events = json.loads((tmp_path / "x.json").read_bytes())["traceEvents"]
    named = {e["name"] for e in events if e.get("cat") == "idle" and "awaits" not in e["args"]}
    assert named == {"nothing left", "host is late"}


@pytest.mark.parametrize("name", ["x.json", "x.pftrace"])
def test_the_real_processor_shows_why(name: str, tmp_path: Path) -> None:
    schedule = pipetrace.build("zb-h1", 4, 8)
    timeline = pipetrace.simulate(schedule, COSTS)
    write_trace(tmp_path / name, [("ideal", timeline)], schedule=schedule, costs=COSTS)
    key = "args.why" if name.endswith("json") else "debug.why"
    counted, first, order = query(
        tmp_path / name,
        "select count(*), sum(dur) from slice where category = 'idle'",
        f"select name, extract_arg(arg_set_id, '{key}') from slice where category = 'idle' "
        "and name like 'waits for I 0%' order by dur desc limit 1",
        "select distinct category from slice where category is not null order by 1",
    )
    expected = gaps(schedule, timeline, costs=COSTS)
    assert counted == [(len(expected), sum(gap.duration for gap in expected))]
    assert first[0][0] == "waits for I 0 of stage 1"
    assert first[0][1].startswith("rank 0 waits for I0 of stage 1 on rank 1")
    assert order == [("compute",), ("idle",), ("phase",), ("recv",), ("send",), ("wait",)]
