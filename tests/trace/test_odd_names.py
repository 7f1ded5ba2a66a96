"""Names of any characters and lengths, times beyond 2**53 ns: both formats hold them, the real processor loads them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from pipetrace.action import Action, Kind
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.formats import write_trace
from pipetrace.trace.recorded import Recorded
from tests.trace.processor import query

trace_pb2 = cast("Any", importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2"))
LONE = "lone \ud800 and \udfff"
NAMES = (
    'say "hi"',
    "two\nlines",
    "\ttabs\r",
    "back\\",
    "a\\b\\\\",
    "\U0001f600 流 é",
    "".join(map(chr, range(1, 32))) + "\x7f\x85",
    "nul\0 inside",
    LONE,
    "x" * 10_000,
    "é" * 5_000,
    "\\u0041",
    "\u2028</script>",
    "",
)
EPOCH = (1 << 53) * 200 + 1


def write(path: Path) -> None:
    rows = np.arange(len(NAMES), dtype=np.int64)
    none = np.zeros_like(rows)
    events = Recorded(0, ("odd \\",), none, rows, none, rows * 10, rows * 10 + 5, NAMES, ("ca\\",))
    tile = Tile(Action(Kind.F, 0, 0), 0, Lane.COMPUTE, 0, 1000)
    write_trace(path, [('la"b\\el\n\ud800', Timeline.from_tiles(1, [tile], epoch=EPOCH))], recorded=[events])


def test_json_reads_back_equal(tmp_path: Path) -> None:
    write(tmp_path / "x.json")
    whole = json.loads((tmp_path / "x.json").read_bytes())
    kept = [event for event in whole["traceEvents"] if event.get("cat") == "recorded"]
    assert [event["name"] for event in kept] == [name if name != LONE else "lone \ufffd and \ufffd" for name in NAMES]
    assert {event["args"]["category"] for event in kept} == {"ca\\"}
    assert whole["metadata"]["epoch_ns"] == EPOCH
    assert max(event["ts"] for event in whole["traceEvents"] if "ts" in event) <= 1
    named = {event["args"]["name"] for event in whole["traceEvents"] if event["name"] == "process_name"}
    assert "rank 0 recorded" in named
    # The UI up to version 52 shows escapes as they stand, and takes a quote behind a backslash for text.
    counted, shown = query(
        tmp_path / "x.json",
        "select count(*), max(length(name)) from slice where category = 'recorded'",
        "select name from slice where category = 'recorded' and ts in (0, 30, 50, 80, 90) order by ts",
    )
    assert counted == [(len(NAMES), 10_000)]
    assert [name for (name,) in shown] == [
        'say "hi"',
        "back\\u005c",
        "\U0001f600 流 é",
        "lone \ufffd and \ufffd",
        "x" * 10_000,
    ]


def test_perfetto_reads_back_equal(tmp_path: Path) -> None:
    write(tmp_path / "x.pftrace")
    packets = trace_pb2.Trace.FromString((tmp_path / "x.pftrace").read_bytes()).packet
    names = {entry.iid: entry.name for packet in packets for entry in packet.interned_data.event_names}
    events = {p.timestamp: names[p.track_event.name_iid] for p in packets if p.track_event.type == 1}
    expected = [name if name != LONE else "lone \ufffd and \ufffd" for name in NAMES]
    assert [events[10 * row] for row in range(1, len(NAMES))] == expected[1:]
    assert max(packet.timestamp for packet in packets) == 1000
    (shown,) = query(tmp_path / "x.pftrace", "select ts, hex(name) from slice where category = 'recorded' order by ts")
    # The processor's own strings end at a NUL; a name that is empty is none.
    ends = [name.partition("\0")[0] for name in expected]
    assert [bytes.fromhex(text or "").decode() for _, text in shown] == ends
