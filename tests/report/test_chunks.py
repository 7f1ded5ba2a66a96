"""Chunks of a rank, and what legends say of them."""

from __future__ import annotations

import numpy as np
import pytest

from pipetrace import Action, Kind, build, simulate
from pipetrace.report.chunks import chunks_of, legend_of_chunks
from pipetrace.timeline import Lane, Tile, Timeline


@pytest.mark.parametrize(
    ("name", "options", "count", "legend"),
    [
        ("1f1b", {}, 1, ""),
        ("interleaved", {}, 2, "dark to light: chunk 0 (stages 0–3), chunk 1 (stages 4–7)"),
        ("interleaved", {"chunks": 4}, 4, "dark to light: chunk 0 (stages 0–3) to chunk 3 (stages 12–15)"),
        ("zbv", {}, 2, "dark to light: chunk 0 (stages 0–3), chunk 1 (stages 4–7)"),
        ("chimera", {"pipes": 2}, 2, "dark to light: pipe 0, pipe 1"),
        ("dualpipe", {}, 2, "dark to light: pipe 0, pipe 1"),
        ("dualpipev", {}, 2, "dark to light: chunk 0 (stages 0–3), chunk 1 (stages 4–7)"),
    ],
)
def test_chunks_are_those_of_the_placement(name: str, options: dict[str, int], count: int, legend: str) -> None:
    schedule = build(name, 4, 8, **options)
    chunks = chunks_of(simulate(schedule))
    assert chunks.count == count
    assert legend_of_chunks([chunks, chunks]) == legend
    for rank in range(4):
        held = sorted(schedule.placement.held_by(rank))
        codes = np.array([Action(Kind.F, stage, 0, pipe=pipe).code for pipe, stage in held])
        assert chunks.of(codes).tolist() == list(range(count))


def test_charts_of_several_schedules_share_their_words() -> None:
    both = [chunks_of(simulate(build(name, 4, 8))) for name in ("zbv", "dualpipe", "1f1b")]
    assert legend_of_chunks(both) == "dark to light: first to last chunk, or pipe"
    assert legend_of_chunks(both, letters=True) == "capital letters: even chunks; small: odd chunks"
    assert legend_of_chunks(both[2:], letters=True) == ""


def test_a_measured_stage_on_two_ranks_and_one_that_is_unknown() -> None:
    tiles = [Tile(Action(Kind.F, 0, rank), rank, Lane.COMPUTE, 0, 10) for rank in range(2)]
    chunks = chunks_of(Timeline.from_tiles(2, tiles))
    assert chunks.count == 1
    assert chunks.of(np.array([Action(Kind.F, 7, 0).code, Action(Kind.F, 0, 0, pipe=1).code])).tolist() == [0, 0]
    assert chunks_of(Timeline.from_tiles(2, [])).count == 1
