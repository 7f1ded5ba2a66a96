"""The parts of a slip in a trace sum to the slip that stands beside them."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest

from pipetrace.diff_run import diff_traces
from pipetrace.report.write import write_diff
from pipetrace.schedules import build
from tests.trace.processor import query

TRACES = Path(__file__).parent.parent / "data" / "traces"
RECORDED = [("zbv_pp2_mb4_mlp", "zbv", 2, 4), ("synthetic_gpu_1f1b_pp4_mb8", "1f1b", 4, 8)]


@pytest.mark.parametrize(("folder", "name", "ranks", "microbatches"), RECORDED)
def test_parts_sum_to_the_slip(folder: str, name: str, ranks: int, microbatches: int, tmp_path: Path) -> None:
    run = diff_traces([TRACES / folder], build(name, ranks, microbatches))
    write_diff(tmp_path / "x.json", run)
    events = json.loads((tmp_path / "x.json").read_bytes())["traceEvents"]
    measured = [e["args"] for e in events if e.get("cat") == "compute" and "slip_ns" in e["args"]]
    assert len(measured) == len(run.schedule)
    for args in measured:
        parts = {part: args[f"slip_{part}_ns"] for part in ("growth", "predecessor_slip", "transfer", "gap", "slack")}
        assert args["slip_ns"] == sum(parts.values()) - 2 * parts["slack"]
    bound = {args["action"]: args.get("slip_predecessor") for args in measured}
    assert set(bound.values()) - {None} <= set(bound)
    assert sum(predecessor is None for predecessor in bound.values()) >= 1


def test_what_others_recorded_stays_in_the_trace(tmp_path: Path) -> None:
    folder = TRACES / "zbv_pp2_mb4_mlp"
    run = diff_traces([folder], build("zbv", 2, 4))
    for name in ("x.json", "x.pftrace"):
        write_diff(tmp_path / name, run)
    whole = json.loads((tmp_path / "x.json").read_bytes(), parse_float=Decimal)
    events, zero = whole["traceEvents"], whole["metadata"]["epoch_ns"]
    kept = [e for e in events if e.get("cat") == "recorded"]
    measured = run.diff.measured
    for rank in range(2):
        found = run.recording.found[rank]
        file = json.loads(gzip.decompress(found.file.read_bytes()), parse_float=Decimal)
        base = int(file["baseTimeNanoseconds"])
        expected = [
            (base + int(e["ts"] * 1000), int(e["dur"] * 1000), e["name"]) for e in file["traceEvents"] if e["ph"] == "X"
        ]
        expected = [event for event in expected if 0 <= event[0] - measured.epoch <= measured.span[1]]
        named = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
        pid = named[f"rank {rank} recorded"]
        got = [(zero + int(e["ts"] * 1000), int(e["dur"] * 1000), e["name"]) for e in kept if e["pid"] == pid]
        assert sorted(got) == sorted(expected)
        assert len(got) > 300
    nested, lanes, counted = query(
        tmp_path / "x.pftrace",
        "select max(depth) from slice where category = 'recorded'",
        "select distinct p.name, g.name from slice s join track t on s.track_id = t.id "
        "join track p on t.parent_id = p.id join track g on p.parent_id = g.id "
        "where s.category = 'recorded' order by 2",
        "select count(*) from slice where category = 'recorded'",
    )
    assert nested[0][0] >= 3
    assert lanes == [("recorded", "rank 0 measured"), ("recorded", "rank 1 measured")]
    assert counted == [(len(kept),)]
