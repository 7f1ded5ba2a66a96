"""Activations in flight over time."""

from __future__ import annotations

import pytest

from pipetrace import build, simulate
from pipetrace.report.memory import memory_figure


def test_conventions_that_agree_are_drawn_once() -> None:
    names = {trace.name for trace in memory_figure(simulate(build("1f1b", 4, 8))).data if trace.showlegend}
    assert names == {"freed at B"}
    names = {trace.name for trace in memory_figure(simulate(build("zb-h1", 4, 8))).data if trace.showlegend}
    assert names == {"freed at I", "freed at W"}


def test_a_long_curve_keeps_its_peak() -> None:
    schedule = build("gpipe", 2, 6000)
    figure = memory_figure(simulate(schedule))
    held = next(trace for trace in figure.data if trace.mode == "markers").customdata
    assert max(held) == 6000
    assert len(held) <= 4000


@pytest.mark.parametrize(
    ("name", "peaks"), [("1f1b", ["4", "3", "2", "1"]), ("zb-h1", ["4", "3 / 4", "2 / 4", "1 / 4"])]
)
def test_each_rank_tells_its_peak(name: str, peaks: list[str]) -> None:
    figure = memory_figure(simulate(build(name, 4, 8)))
    assert [note.text for note in figure.layout.annotations] == [*peaks, "peak"]
    assert all(note.x == 1 and note.xanchor == "left" for note in figure.layout.annotations)
