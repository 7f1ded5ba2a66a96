"""Several ranks in one file, and what is told of a rank beside its actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, event, trace_of


def process(pid: int, name: str, key: str = "process_name") -> dict[str, Any]:
    return {"ph": "M", "name": key, "pid": pid, "tid": 0, "ts": 0, "args": {key.removeprefix("process_"): name}}


def test_ranks_that_are_merged_are_told_apart_by_their_processes(tmp_path: Path) -> None:
    events = [process(7, "python [rank 0]"), process(8, "rank1", "process_labels"), process(9, "a tool")]
    for pid, rank in ((7, 0), (8, 1)):
        events += [event(f"PP:{rank}F0", 10 * rank, 10 * rank + 8, pid=pid), event(f"PP:{rank}B0", 50, 60, pid=pid)]
    events.append(event("aten::mm", 0, 1, pid=9))
    merged = trace_of(0, 2, events)
    (tmp_path / "merged.json").write_text(dump(merged))
    recording = read_recording([tmp_path])
    assert [(found.rank, dict(found.counts)) for found in recording.found] == [
        (0, {"B": 1, "F": 1}),
        (1, {"B": 1, "F": 1}),
    ]
    assert recording.missing == ()
    notes = " ".join(recording.notes)
    assert "the traces of 2 ranks are merged in it" in notes
    assert "1 events of processes that name no rank were left out" in notes


def test_ranks_that_wrote_to_one_path_one_after_the_other(tmp_path: Path) -> None:
    texts = [dump(trace_of(rank, 2, [event(f"PP:{rank}F0", 0, 8), event(f"PP:{rank}B0", 9, 12)])) for rank in range(2)]
    (tmp_path / "trace.json").write_text("\n".join(texts))
    recording = read_recording([tmp_path])
    assert [found.rank for found in recording.found] == [0, 1]
    assert any("2 traces stand one after the other" in note for note in recording.notes)


def test_the_peak_of_memory_where_it_was_recorded(tmp_path: Path) -> None:
    def memory(at: int, device_type: int, allocated: int) -> dict[str, Any]:
        args = {"Total Allocated": allocated, "Device Type": device_type, "Device Id": 0, "Bytes": 1}
        return {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "pid": 1, "tid": 1, "ts": at, "args": args}

    events = [
        event("PP:0F0", 0, 8),
        *(memory(at, kind, size) for at, kind, size in ((1, 1, 5), (2, 1, 900), (3, 0, 30))),
    ]
    (tmp_path / "rank0.json").write_text(dump(trace_of(0, 1, events)))
    (found,) = read_recording([tmp_path]).found
    assert found.peak_memory == {"gpu 0": 900, "cpu": 30}


def test_actions_that_cross_are_told(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text(dump(trace_of(0, 1, [event("PP:0F0", 0, 8), event("PP:0B0", 5, 12)])))
    assert "rank 0: 1 actions begin before the one before them has ended" in read_recording([tmp_path]).notes
