"""Chrome JSON: what is in the file, and what the real trace processor makes of it."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.errors import OutputError
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.chrome import json_text
from pipetrace.trace.formats import write_trace
from pipetrace.trace.tracks import Tracks
from tests.trace.processor import query
from tests.trace.recorded import micros

COUNTS = ("select count(*) from slice", "select count(*) from flow")
LINKED = """
    select a.name, b.name, pa.name, pb.name, a.ts, b.ts
    from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
    join thread_track ta on a.track_id = ta.id join thread_track tb on b.track_id = tb.id
    join thread ha on ta.utid = ha.utid join thread hb on tb.utid = hb.utid
    join process pa on ha.upid = pa.upid join process pb on hb.upid = pb.upid
"""


def ideal() -> Timeline:
    return pipetrace.simulate(pipetrace.build("zb-h1", 4, 8))


def measured() -> Timeline:
    costs = pipetrace.parse_costs("F=1.000001,I=1.1,W=0.333333", p2p=2_500_001)
    timeline = pipetrace.simulate(pipetrace.build("zb-h1", 4, 8), costs)
    columns = {name: getattr(timeline, name) for name in ("rank", "code", "start", "end", "lane", "posted", "waited")}
    return Timeline.from_columns(4, columns, epoch=1_790_857_026_000_000_123)


def load(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    loaded = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)
    assert isinstance(loaded, dict)
    return loaded


def test_ideal_in_the_real_processor(tmp_path: Path) -> None:
    path = tmp_path / "ideal.json"
    write_trace(path, [("ideal", ideal())])
    slices, flows, times, linked, names, counters = query(
        path,
        *COUNTS,
        "select min(ts), max(ts + dur), sum(dur) from slice where category = 'compute'",
        LINKED,
        "select t.name, p.name from thread t join process p using (upid) where t.name is not null order by t.tid",
        "select t.name, max(c.value) from counter c join process_counter_track t on c.track_id = t.id group by t.name",
    )
    assert slices == [(4 * (8 * 3 + 3),)]
    assert flows == [(2 * 3 * 8,)]
    assert times == [(0, 27_000_000, 4 * 8 * 3 * 1_000_000)]
    for one, other, _, _, leaves, arrives in linked:
        assert one == other
        assert leaves + 1_000_000 <= arrives
    assert names == [(name, f"rank {rank}") for rank in range(4) for name in ("phase", f"rank {rank} compute")]
    assert dict(counters) == {
        "idle ranks": 3.0,
        "in flight, freed at I chunks": 4.0,
        "in flight, freed at W chunks": 4.0,
    }


@pytest.mark.parametrize("name", ["two.json", "two.json.gz"])
def test_two_timelines_in_the_real_processor(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_trace(path, [("ideal", ideal()), ("measured", measured())])
    events = load(path)["traceEvents"]
    expected = {phase: sum(e["ph"] == phase for e in events) for phase in "XsfC"}
    slices, flows, linked, drift, slip = query(
        path,
        *COUNTS,
        LINKED,
        "select distinct p.name from process_counter_track t join process p using (upid) where t.name = 'drift ms'",
        "select int_value from args where flat_key = 'args.slip_ns' and arg_set_id = "
        "(select arg_set_id from slice where name = 'F 0' order by ts, dur desc limit 1)",
    )
    assert slices == [(expected["X"],)]
    assert flows == [(expected["s"],)] == [(2 * 48 + 96,)]
    assert expected["s"] == expected["f"]
    assert load(path)["metadata"]["flows_dropped"] == 0
    counterparts = [(a, b, c, d) for a, b, c, d, *_ in linked if c.split()[1] == d.split()[1] and c != d]
    assert len(counterparts) == 96
    assert all(a == b and d == c.replace("ideal", "measured") for a, b, c, d in counterparts)
    assert {d[0] for d in drift} == {f"rank {rank} measured" for rank in range(4)}
    assert slip == [(1,)]


@pytest.mark.parametrize(
    ("costs", "unit", "per"),
    [("F=1.000001", "µs", 1_000), ("F=1.000001,I=1.1234567", "ms", 1_000_000), ("F=0.7654321", "ms", 1_000_000)],
)
def test_the_drift_is_exact_in_a_unit_that_people_read(costs: str, unit: str, per: int, tmp_path: Path) -> None:
    other = pipetrace.simulate(pipetrace.build("zb-h1", 4, 8), pipetrace.parse_costs(costs))
    tracks = Tracks([("ideal", ideal()), ("measured", other)])
    write_trace(tmp_path / "x.json", [("ideal", ideal()), ("measured", other)])
    events = [event for event in load(tmp_path / "x.json")["traceEvents"] if event["name"] == "drift"]
    drifts = [counter for counter in tracks.counters if counter.name == "drift"]
    assert {(counter.unit, counter.per) for counter in drifts} == {(unit, per)}
    values = [value for counter in drifts for value in counter.series.value.tolist()]
    assert len({*values}) > 8
    assert [event["args"] for event in events] == [{unit: Decimal(value) / per} for value in values]


def test_zero_length_and_touching_tiles_load(tmp_path: Path) -> None:
    costs = pipetrace.parse_costs("F=0,I=0.000001,W=0", p2p=1)
    timeline = pipetrace.simulate(pipetrace.build("zb-h1", 4, 8), costs)
    path = tmp_path / "tiny.json"
    write_trace(path, [("ideal", timeline)])
    slices, flows, own = query(
        path,
        *COUNTS,
        "select a.name, b.name from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id",
    )
    about = load(path)["metadata"]
    events = load(path)["traceEvents"]
    assert slices == [(sum(e["ph"] == "X" for e in events),)]
    assert flows == [(about["flows"],)]
    assert about["flows"] + about["flows_dropped"] == 48
    assert about["flows_dropped"] == 0
    assert all(a == b for a, b in own)


def test_clocks_that_disagree_lose_no_arrow_without_a_word(tmp_path: Path) -> None:
    timeline = ideal()
    early = timeline.where(timeline.rank > 0)
    rank0 = timeline.where(timeline.rank == 0).shifted(3_500_000)
    mixed = Timeline.from_tiles(4, [*rank0, *early], epoch=1)
    path = tmp_path / "noise.json"
    write_trace(path, [("measured", mixed)])
    about = load(path)["metadata"]
    assert about["flows"] + about["flows_dropped"] == 48
    assert about["flows_dropped"] > 0
    slices, flows = query(path, "select count(*) from slice where category = 'compute'", COUNTS[1])
    assert slices == [(96,)]
    assert flows == [(about["flows"],)]


def test_form_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "form.json"
    write_trace(path, [("ideal", ideal()), ("measured", measured())], metadata={"schedule": "zb-h1", "epoch_ns": 3})
    whole = load(path)
    assert whole["metadata"]["schedule"] == "zb-h1"
    assert whole["metadata"]["epoch_ns"] == 1_790_857_026_000_000_123
    assert whole["metadata"]["timelines"][0] == {
        "label": "ideal",
        "ranks": 4,
        "tiles": 96,
        "makespan_ns": 27_000_000,
    }
    events = whole["traceEvents"]
    pids = {e["pid"] for e in events}
    tids = {e["tid"] for e in events if "tid" in e}
    assert pids == set(range(1, 10))
    assert not pids & tids
    assert min(tids) >= 1
    for event in events:
        for key in ("ts", "dur"):
            if key in event:
                assert event[key] * 1000 == int(event[key] * 1000)
                assert event[key] >= 0
        if event["ph"] == "f":
            assert event["bp"] == "e"
    ids = [e["id"] for e in events if e["ph"] == "s"]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(i, int) for i in ids)
    ends = {e["id"]: (e["cat"], e["name"]) for e in events if e["ph"] == "f"}
    assert {e["id"]: (e["cat"], e["name"]) for e in events if e["ph"] == "s"} == ends


def test_compressed_files_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.JSON.GZ", "c.json"):
        write_trace(tmp_path / name, [("ideal", ideal())])
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.JSON.GZ").read_bytes()
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "c.json").read_bytes()


def test_odd_text_loads_in_the_real_processor(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    label = 'é "quoted" \x01 \ud800 \U0001f600 back\\'
    odd = {"path": "C:\\", "\\": ["x\\", {"deep": "\n\t\u2028"}], "nan": math.nan, "inf": -math.inf, "none": None}
    write_trace(path, [(label, ideal()), ("m", measured())], metadata={**odd, "path object": Path("/a"), "yes": True})
    (names,) = query(path, "select name from process where name like 'rank 0 %' order by pid")
    assert names[0][0].startswith('rank 0 é "quoted" ')
    assert "\ufffd" in names[0][0]
    whole = load(path)
    assert whole["metadata"]["path"] == "C:\\"
    assert whole["metadata"]["\\"] == ["x\\", {"deep": "\n\t\u2028"}]
    assert (whole["metadata"]["nan"], whole["metadata"]["inf"]) == ("nan", "-inf")
    assert whole["metadata"]["path object"] == "/a"
    assert whole["metadata"]["yes"] is True
    assert whole["metadata"]["timelines"][0]["label"] == label.replace("\ud800", "\ufffd")
    assert b"\\u00e9" not in path.read_bytes()
    assert b'\\\\"' not in path.read_bytes()


def test_nothing_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    write_trace(path, [("ideal", Timeline.from_tiles(2, []))])
    assert query(path, *COUNTS) == [[(0,)], [(0,)]]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        write_trace(tmp_path / "absent" / "x.json", [("ideal", ideal())])


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_interrupted_writing_leaves_the_old_file(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_text("old")

    class Stop:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace(path, [("ideal", ideal())], metadata={"x": Stop()})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line() -> None:
    with pytest.raises(OutputError) as caught:
        write_trace(Path("/dev/full"), [("ideal", ideal())])
    assert str(caught.value) == "/dev/full cannot be written: No space left on device"


@given(st.integers(-(10**19), 10**19))
@settings(deadline=None)
def test_micros_are_exact(ns: int) -> None:
    text = micros(ns)
    assert Decimal(text) * 1000 == ns
    assert len(text.partition(".")[2]) <= 3


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
@settings(deadline=None)
def test_json_text_is_json(value: Any) -> None:
    assert json.loads(json_text(value)) == value


@given(st.text(st.characters(categories=["Cs", "Cc", "Po", "Lu"]), max_size=8))
@settings(deadline=None)
def test_any_text_can_be_encoded(text: str) -> None:
    assert len(json.loads(json_text(text).encode().decode())) <= len(text)


def test_a_tile_alone(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    tile = Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 7, 8)
    write_trace(path, [("measured", Timeline.from_tiles(1, [tile], epoch=1_000))])
    assert load(path)["metadata"]["epoch_ns"] == 1_007
    assert query(path, "select name, ts, dur from slice where category = 'compute'") == [[("F 0", 0, 1)]]
