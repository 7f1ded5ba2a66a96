"""Traces as torch.profiler would have recorded a given timeline, labelled as pipetrace's executor labels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from pipetrace.timeline import Lane, Timeline

BASE = 1_790_857_026_000_000_000
START = 8_796_093_022_208_999
"""When a recording begins, in ns after `BASE`: so late that a float of µs loses the ns."""


def micros(ns: int) -> str:
    """Integer ns as µs with three decimals at most, without a float on the way."""
    whole, rest = divmod(abs(ns), 1000)
    text = f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
    return f"-{text}" if ns < 0 else text


def event(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """A range; ns from the recording's start. Times are placed as text, see `dump`."""
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 7,
        "tid": 7,
        "ts": f"#{micros(START + start)}#",
        "dur": f"#{micros(end - start)}#",
        **more,
    }


def dump(trace: Any) -> str:
    """JSON with numbers that no float has rounded."""
    return json.dumps(trace).replace('"#', "").replace('#"', "")


def trace_of(rank: int, world: int, events: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": world},
        "host_name": "here",
        "baseTimeNanoseconds": BASE,
        "traceEvents": events,
        **more,
    }


def labels(timeline: Timeline, rank: int, step: int = 0, shift: int = 0) -> list[dict[str, Any]]:
    """The ranges of one rank's step."""
    events = []
    mine = timeline.where(timeline.rank == rank)
    for tile in mine:
        begin, end = tile.start + shift, tile.end + shift
        if tile.lane is Lane.COMPUTE:
            events.append(event(f"PP:{tile.action}", begin, end))
        elif tile.lane is Lane.SEND:
            events.append(event(f"POST:{tile.action}", begin, begin + 10))
            events.append(event(f"WAIT:{tile.action}", timeline.span[1] + shift, timeline.span[1] + shift + 5))
        else:
            waited = end - 1 if tile.waited is None else tile.waited + shift
            events.append(event(f"POST:{tile.action}", shift - 50, shift - 40))
            events.append(event(f"WAIT:{tile.action}", waited, end))
    events.append(event("aten::mm", shift, shift + 3, cat="cpu_op"))
    events.append(event(f"ProfilerStep#{step}", shift - 100, timeline.span[1] + shift + 100))
    return events


def write_run(folder: Path, timeline: Timeline, steps: int = 1, **more: Any) -> None:
    """A folder of traces, one a rank."""
    for rank in range(timeline.ranks):
        events = [e for step in range(steps) for e in labels(timeline, rank, step, step * 10**9)]
        (folder / f"rank{rank}_trace.json.gz").write_bytes(
            gzip.compress(dump(trace_of(rank, timeline.ranks, events, **more)).encode())
        )
