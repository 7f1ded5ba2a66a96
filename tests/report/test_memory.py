"""Activations in flight over time."""

from __future__ import annotations

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
