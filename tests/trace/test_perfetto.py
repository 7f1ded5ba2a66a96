"""Perfetto's own format: the packets as its protos read them, and what the real trace processor makes of them."""

from __future__ import annotations

import gzip
import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.errors import OutputError
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.formats import Colour, write_trace
from pipetrace.trace.perfetto import perfetto_packets
from pipetrace.trace.tracks import Labelled, Tracks
from tests.trace.processor import query
from tests.trace.shown import slices
from tests.trace.test_chrome import ideal, measured
from tests.trace.test_tracks import TILES, timeline_of

trace_pb2 = cast("Any", importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2"))
EVENT, DESCRIPTOR = trace_pb2.TrackEvent, trace_pb2.TrackDescriptor
BOTH: Labelled = [("ideal", ideal()), ("measured", measured())]
ABOUT = "about this trace"


def read(content: bytes) -> Any:
    return trace_pb2.Trace.FromString(content)


class Read:
    """A trace as its packets say it, in the order of time where they are events."""

    def __init__(self, trace: Any) -> None:
        self.tracks = {
            p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")
        }
        names: dict[int, str] = {}
        keys: dict[int, str] = {}
        categories: dict[int, str] = {}
        events = []
        for packet in trace.packet:
            for table, entries in (
                (names, packet.interned_data.event_names),
                (keys, packet.interned_data.debug_annotation_names),
                (categories, packet.interned_data.event_categories),
            ):
                for entry in entries:
                    assert table.setdefault(entry.iid, entry.name) == entry.name, "a number stands for one name"
            if packet.HasField("track_event"):
                assert packet.trusted_packet_sequence_id == 1
                event = packet.track_event
                name = event.name if event.HasField("name") else names.get(event.name_iid, "")
                args = {
                    a.name or keys[a.name_iid]: a.string_value if a.HasField("string_value") else a.int_value
                    for a in event.debug_annotations
                }
                events.append((packet.timestamp, event, name, args, [categories[i] for i in event.category_iids]))
        self.slices: list[tuple[Any, ...]] = []
        self.counters: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.flows: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.about: dict[str, Any] = {}
        self.correlation: dict[str, int] = {}
        open_on: dict[int, list[Any]] = defaultdict(list)
        for time, event, name, args, category in sorted(events, key=lambda e: e[0]):  # stable, as the processor sorts
            for flow in event.terminating_flow_ids:
                assert self.flows[flow], "an arrow leaves before it arrives"
                self.flows[flow].append((time, "arrives"))
            if event.type == EVENT.TYPE_SLICE_BEGIN:
                assert not open_on[event.track_uuid], "slices do not overlap on a track"
                open_on[event.track_uuid].append((time, name, category, args))
                for flow in event.flow_ids:
                    self.flows[flow].append((time, "leaves"))
                self.correlation[name] = event.correlation_id
            elif event.type == EVENT.TYPE_SLICE_END:
                start, *what = open_on[event.track_uuid].pop()
                self.slices.append((event.track_uuid, start, time, *what))
            elif event.type == EVENT.TYPE_COUNTER:
                which = event.WhichOneof("counter_value_field")
                self.counters[event.track_uuid].append((time, getattr(event, which)))
            else:
                assert name == ABOUT
                self.about = args
        assert not any(open_on.values())

    def children(self, parent: int) -> list[Any]:
        mine = [t for t in self.tracks.values() if t.HasField("parent_uuid") and t.parent_uuid == parent]
        assert len({t.sibling_order_rank for t in mine}) == len(mine)
        return sorted(mine, key=lambda t: t.sibling_order_rank)

    @property
    def root(self) -> Any:
        (root,) = [t for t in self.tracks.values() if not t.HasField("parent_uuid")]
        return root


def written(tmp_path: Path, timelines: Labelled, **more: Any) -> tuple[Path, Read]:
    path = tmp_path / "x.pftrace"
    write_trace(path, timelines, **more)
    return path, Read(read(path.read_bytes()))


@pytest.mark.parametrize("timelines", [BOTH[:1], BOTH], ids=["ideal", "both"])
def test_every_slice_counter_and_arrow_is_read_back_equal(tmp_path: Path, timelines: Labelled) -> None:
    _, found = written(tmp_path, timelines)
    tracks = Tracks(timelines)
    expected = [(t.tid, t.start, t.end, t.name, [t.category], t.args) for t in slices(tracks)]
    assert sorted(found.slices, key=repr) == sorted(expected, key=repr)
    assert {flow: [end for _, end in ends] for flow, ends in found.flows.items()} == {
        number + 1: ["leaves", "arrives"] for number in range(tracks.arrows)
    }
    named = {
        (found.tracks[found.tracks[u].parent_uuid].name, found.tracks[u].name): v for u, v in found.counters.items()
    }
    names = {process.pid: process.name for process in tracks.processes}
    assert named == {
        (names[c.pid], c.name): list(zip(c.series.time.tolist(), (c.series.value / c.per).tolist(), strict=True))
        for c in tracks.counters
    }


def test_tracks_are_nested_and_in_order(tmp_path: Path) -> None:
    _, found = written(tmp_path, BOTH, metadata={"schedule": "zb-h1"})
    assert found.root.name == "zb-h1"
    assert all(t.child_ordering == DESCRIPTOR.EXPLICIT for t in found.tracks.values())
    ranks = found.children(found.root.uuid)
    assert [t.name for t in ranks] == [
        *(f"rank {rank} {label}" for rank in range(4) for label in ("ideal", "measured")),
        "all ranks",
    ]
    tracks = Tracks(BOTH)
    for rank, process in zip(ranks, tracks.processes, strict=True):
        lanes = [t.name for t in tracks.tracks if t.pid == process.pid]
        counters = [c.name for c in tracks.counters if c.pid == process.pid]
        assert [t.name for t in found.children(rank.uuid)] == lanes + counters
    units = {t.name: (t.counter.unit, t.counter.unit_name) for t in found.tracks.values() if t.HasField("counter")}
    assert units["drift"] == (0, "ms")
    assert units["idle measured"] == (0, "ranks")
    assert units["in flight, freed at I"] == (0, "chunks")


def test_the_real_processor_agrees(tmp_path: Path) -> None:
    path, _ = written(tmp_path, BOTH)
    tracks = Tracks(BOTH)
    mine = f"name != '{ABOUT}'"
    totals, flows, counters, order, identity, linked, epoch = query(
        path,
        f"select count(*), sum(ts), sum(dur), min(ts) from slice where {mine}",
        "select count(*) from flow",
        "select count(*), sum(value) from counter",
        "select t.name, p.name from slice s join track t on s.track_id = t.id join track p on t.parent_id = p.id "
        f"where s.{mine} group by t.id order by min(s.id) limit 1",
        "select string_value from args where flat_key = 'debug.action' and arg_set_id = "
        f"(select arg_set_id from slice where name = 'F 3' and {mine} order by ts limit 1)",
        "select count(*) from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id "
        "where a.name = b.name and a.ts <= b.ts",
        "select int_value from args where flat_key = 'debug.epoch_ns'",
    )
    shown = list(slices(tracks))
    assert totals == [
        (len(shown), sum(t.start for t in shown), sum(t.end - t.start for t in shown), min(t.start for t in shown))
    ]
    assert flows == [(tracks.arrows,)]
    assert tracks.dropped == 0
    assert counters == [
        (
            sum(c.series.time.size for c in tracks.counters),
            pytest.approx(sum(int(c.series.value.sum()) / c.per for c in tracks.counters), rel=1e-12),
        )
    ]
    assert order == [("rank 0 ideal compute", "rank 0 ideal")]
    assert identity == [("0F3",)]
    assert linked == [(tracks.arrows,)]
    assert epoch == [(measured().epoch,)]


def test_one_colour_a_microbatch_or_by_kind(tmp_path: Path) -> None:
    _, found = written(tmp_path, BOTH[:1])
    of = [{found.correlation[f"{kind} {mb}"] for kind in "FIW"} for mb in range(8)]
    assert all(len(ids) == 1 for ids in of)
    assert len(set.union(*of)) == 8
    _, found = written(tmp_path, BOTH[:1], colour=Colour.KIND)
    assert set(found.correlation.values()) == {0}


def test_metadata_stands_on_the_first_event(tmp_path: Path) -> None:
    _, found = written(
        tmp_path,
        BOTH,
        metadata={"schedule": "zb-h1", "costs": {"F": 1.5}, "odd": "\ud800 \\", "big": 1 << 70, "yes": True},
    )
    assert found.about["writer"] == f"pipetrace {pipetrace.__version__}"
    assert found.about["epoch_ns"] == 1_790_857_026_000_000_123
    assert found.about["costs"] == '{"F":1.5}'
    assert found.about["odd"] == "\ufffd \\"
    assert found.about["big"] == str(1 << 70)
    assert found.about["yes"] == "true"


@pytest.mark.parametrize("name", ["zbv", "dualpipe", "chimera", "interleaved"])
def test_schedules_with_several_stages_and_pairs(tmp_path: Path, name: str) -> None:
    timeline = pipetrace.simulate(pipetrace.build(name, 4, 8))
    path, found = written(tmp_path, [("ideal", timeline)])
    tracks = Tracks([("ideal", timeline)])
    assert sorted(s[3] for s in found.slices) == sorted(t.name for t in slices(tracks))
    counted, flows = query(path, "select count(*) from slice where dur >= 0", "select count(*) from flow")
    assert counted == [(len(tracks) + 1,)]
    assert flows == [(tracks.arrows,)]


def test_names_beyond_what_is_kept_are_written_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pipetrace.trace.perfetto._MOST_NAMES", 5)
    path, found = written(tmp_path, BOTH[:1])
    assert sorted(s[3] for s in found.slices) == sorted(t.name for t in slices(Tracks(BOTH[:1])))
    names = [n.name for p in read(path.read_bytes()).packet for n in p.interned_data.event_names]
    assert len(names) == 5
    assert query(path, "select count(*) from slice where name like 'F %'") == [[(32,)]]


def test_arrows_between_slices_that_start_together(tmp_path: Path) -> None:
    # Backwards through the ranks, so that in the order of tracks each slice stands before what leads to it.
    tiles = [Tile(Action(Kind.B, stage, 0), stage, Lane.COMPUTE, 5, 5 if stage > 0 else 9) for stage in range(2)] + [
        Tile(Action(Kind.B, stage, 1), stage, Lane.COMPUTE, 20, 20 + 4 * (3 - stage)) for stage in range(3)
    ]
    timeline = Timeline.from_tiles(3, tiles)
    path, found = written(tmp_path, [("x", timeline)])
    tracks = Tracks([("x", timeline)])
    assert tracks.arrows == len(found.flows) == 3
    linked, count = query(
        path,
        "select a.name, b.name, extract_arg(a.arg_set_id, 'debug.rank') - extract_arg(b.arg_set_id, 'debug.rank') "
        "from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id",
        "select count(*) from slice where dur >= 0",
    )
    assert sorted(linked) == [("B 0", "B 0", 1), ("B 1", "B 1", 1), ("B 1", "B 1", 1)]
    assert count == [(len(tracks) + 1,)]


def test_zero_length_and_touching_tiles_load(tmp_path: Path) -> None:
    costs = pipetrace.parse_costs("F=0,I=0.000001,W=0", p2p=1)
    timeline = pipetrace.simulate(pipetrace.build("zb-h1", 4, 8), costs)
    path, _ = written(tmp_path, [("ideal", timeline)])
    tracks = Tracks([("ideal", timeline)])
    counted, flows = query(path, "select count(*) from slice where dur >= 0", "select count(*) from flow")
    assert counted == [(len(tracks) + 1,)]
    assert flows == [(tracks.arrows,)] == [(48,)]


def test_compressed_files_hold_the_same(tmp_path: Path) -> None:
    for name in ("a.pftrace", "b.PFTRACE.GZ", "c.pftrace.gz"):
        write_trace(tmp_path / name, BOTH)
    assert gzip.decompress((tmp_path / "b.PFTRACE.GZ").read_bytes()) == (tmp_path / "a.pftrace").read_bytes()
    assert (tmp_path / "b.PFTRACE.GZ").read_bytes() == (tmp_path / "c.pftrace.gz").read_bytes()
    assert query(tmp_path / "c.pftrace.gz", "select count(*) from slice where dur >= 0")[0][0][0] > 192


def test_nothing_is_a_trace_too(tmp_path: Path) -> None:
    path, found = written(tmp_path, [("ideal", Timeline.from_tiles(2, []))])
    assert found.slices == []
    assert query(path, "select count(*) from slice where dur > 0") == [[(0,)]]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        write_trace(tmp_path / "absent" / "x.pftrace", BOTH)


@given(st.lists(TILES, min_size=1, max_size=2))
@settings(deadline=None)
def test_any_tiles_are_read_back_equal(drawn: list[list[Any]]) -> None:
    tracks = Tracks([(str(i), timeline_of(tiles)) for i, tiles in enumerate(drawn)])
    found = Read(read(b"".join(perfetto_packets(tracks))))
    expected = [(t.tid, t.start, t.end, t.name, [t.category], t.args) for t in slices(tracks)]
    assert sorted(found.slices, key=repr) == sorted(expected, key=repr)
    assert len(found.flows) == tracks.arrows
    assert all([end for _, end in ends] == ["leaves", "arrives"] for ends in found.flows.values())


def test_values_of_64_bits(tmp_path: Path) -> None:
    start = (1 << 62) + 1
    timeline = Timeline.from_tiles(1, [Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, start, start + 1)], epoch=3)
    _, found = written(tmp_path, [("measured", timeline)])
    assert [s[1:4] for s in found.slices if s[3] == "F 0"] == [(0, 1, "F 0")]
    assert found.about["epoch_ns"] == start + 3
    assert np.int64(found.about["epoch_ns"]) == start + 3


def test_a_colour_by_its_text(tmp_path: Path) -> None:
    files: list[bytes] = []
    for colour in (Colour.MICROBATCH, "microbatch", Colour.KIND):
        path = tmp_path / f"{len(files)}.pftrace"
        write_trace(path, [("ideal", ideal())], colour=colour)  # type: ignore[arg-type]
        files.append(path.read_bytes())
    assert files[0] == files[1] != files[2]
    with pytest.raises(ValueError, match="red"):
        write_trace(tmp_path / "x.pftrace", [("ideal", ideal())], colour="red")  # type: ignore[arg-type]
