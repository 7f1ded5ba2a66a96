"""Clocks of ranks: shared, aligned by what travelled, or not compared."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.timeline import Lane
from pipetrace.trace.clocks import NOT_ALIGNED
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.gpu import compute_times, write_gpu_run
from tests.trace.recorded import dump, event, trace_of


def skewed(folder: Path, skews: list[int]) -> pipetrace.Timeline:
    """A GPU run on machines whose clocks are off by so many ns, with the same transfer time both ways."""
    schedule = pipetrace.build("1f1b", len(skews), 6)
    ideal = pipetrace.simulate(schedule, pipetrace.parse_costs("F=1,B=2", p2p=200_000))
    write_gpu_run(folder, ideal, schedule, host_name=None)
    for rank, skew in enumerate(skews):
        path = folder / f"rank{rank}.json.gz"
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["baseTimeNanoseconds"] += skew
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return ideal


@pytest.mark.parametrize("skews", [[0, 0, 0], [0, 5_000_000, -3_000_000], [7, 0, 2_000_000_000]])
def test_what_travels_aligns_clocks(tmp_path: Path, skews: list[int]) -> None:
    ideal = skewed(tmp_path, skews)
    recording = read_recording([tmp_path])
    assert recording.common_clock
    (note,) = (note for note in recording.notes if "were aligned by" in note)
    doubt = int(float(note.rpartition("off by ")[2].removesuffix(" µs").replace(",", "")) * 1000)
    assert 0 < doubt < 2_000_000
    found, truth = compute_times(recording.steps[0]), compute_times(ideal)
    for action, (rank, start, _) in truth.items():
        assert found[action][0] == rank
        assert abs(found[action][1] - start) <= doubt
    for tile in recording.steps[0].where(recording.steps[0].lane == Lane.RECV):
        assert tile.end >= tile.start


def write(folder: Path, traces: list[list[dict[str, Any]]]) -> None:
    for rank, events in enumerate(traces):
        (folder / f"rank{rank}.json").write_text(dump(trace_of(rank, len(traces), events, host_name=f"node{rank}")))


def sent(stage: int, at: int) -> list[dict[str, Any]]:
    return [event(f"PP:{stage}F0", at, at + 5), event(f"POST:{stage}SEND_F0", at + 5, at + 6)]


def test_messages_one_way_are_no_evidence(tmp_path: Path) -> None:
    received = [event("POST:1RECV_F0", 0, 1), event("WAIT:1RECV_F0", 2, 20), event("PP:1F0", 21, 25)]
    write(tmp_path, [sent(0, 0), received])
    recording = read_recording([tmp_path])
    assert not recording.common_clock
    assert any(note.startswith(NOT_ALIGNED) and "no messages both ways" in note for note in recording.notes)


def test_contradictions_are_told(tmp_path: Path) -> None:
    """Each arrived before it was sent, by clocks that no offset reconciles."""
    there = [event("WAIT:1RECV_F0", 2, 3000), event("PP:1F0", 3001, 4000), event("PP:1B0", 4000, 9000)]
    there += [event("POST:1SEND_B0", 9000, 9001), event("POST:1RECV_F0", 0, 1)]
    back = [event("POST:0RECV_B0", 6, 7), event("WAIT:0RECV_B0", 7, 2000), event("PP:0B0", 2001, 2009)]
    write(tmp_path, [[*sent(0, 5000), *back], there])
    recording = read_recording([tmp_path])
    assert not recording.common_clock
    assert any("contradict each other by 9.0" in note for note in recording.notes)


def test_steps_that_lie_years_apart_share_no_clock(tmp_path: Path) -> None:
    """Two ranks name one host, but the base of one file's times is lost."""
    for rank in range(2):
        trace = trace_of(rank, 2, [event(f"PP:{rank}F0", 0, 10), event(f"PP:{rank}B0", 20, 30)])
        if rank:
            del trace["baseTimeNanoseconds"]
        (tmp_path / f"rank{rank}.json").write_text(dump(trace))
    recording = read_recording([tmp_path])
    assert not recording.common_clock
    assert any("lies" in note and "behind that of rank" in note for note in recording.notes)
