"""A million arrows, each of which the real trace processor finds."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipetrace
from pipetrace.trace.formats import write_trace
from tests.trace.processor import query


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_a_million_flows(suffix: str, tmp_path: Path) -> None:
    schedule = pipetrace.build("gpipe", 64, 8000)
    links = schedule.links
    crossing = int(links.crosses(links.inputs).sum() + links.crosses(links.gradients).sum())
    assert crossing > 1_000_000
    path = tmp_path / f"large.{suffix}"
    write_trace(path, [("ideal", pipetrace.simulate(schedule))], schedule=schedule)
    ((flows,),), ((tiles,),) = query(
        path,
        "select count(*) from flow",
        "select count(*) from slice where name glob 'F *' or name glob 'B *'",
    )
    assert (flows, tiles) == (crossing, len(schedule))
    path.unlink()  # half a gigabyte
