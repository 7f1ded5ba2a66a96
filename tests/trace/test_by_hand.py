"""All recorded folders: every action found, and every figure as an independent computation has it, to the ns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.report.recording import recording_summary
from pipetrace.trace.torch_profiler import read_recording
from tests.trace import by_hand
from tests.trace.by_hand import Rank

TRACES = Path(__file__).parent.parent / "data" / "traces"
FOLDERS: dict[str, tuple[str | None, int, Callable[[Path], list[Rank]]]] = {
    # folder: schedule where nothing is labelled, actions, by hand
    "zbv_pp2_mb4_mlp": (None, 48, lambda folder: by_hand.runtime(folder, 2)),
    "rt-zbh1_pp4_mb8_mlp": (None, 96, lambda folder: by_hand.runtime(folder, 4)),
    "gpipe_pp2_mb4_mlp": (None, 16, lambda folder: by_hand.gpipe(folder, 2)),
    "1f1b_pp2_mb4_mlp": ("1f1b", 16, by_hand.cpu_1f1b),
    "synthetic_gpu_1f1b_pp4_mb8": ("1f1b", 64, lambda folder: by_hand.gpu_1f1b(folder, 4)),
}


def test_all_recorded_folders_are_looked_at() -> None:
    assert {folder.name for folder in TRACES.iterdir()} == set(FOLDERS)


def sizes(folder: str) -> tuple[int, int]:
    ranks, microbatches = (part[2:] for part in folder.split("_") if part.startswith(("pp", "mb")))
    return int(ranks), int(microbatches)


@pytest.mark.parametrize("folder", FOLDERS)
def test_figures_are_those_of_an_independent_computation(folder: str) -> None:
    name, actions, work_out = FOLDERS[folder]
    schedule = None if name is None else pipetrace.build(name, *sizes(folder))
    recording = read_recording([TRACES / folder], schedule)
    summary: dict[str, Any] = recording_summary(recording)
    (step,) = summary["steps"]
    ranks = work_out(TRACES / folder)
    assert summary["not_found"] == []
    assert step["actions"] == sum(len(rank.tiles) for rank in ranks) == actions
    assert summary["common_clock"]
    assert set(recording.offsets.values()) <= {0}
    (timeline,) = recording.steps
    base = 1790857026000000000 if "gpu" not in folder else 0
    for number, rank in enumerate(ranks):
        mine = timeline.where(timeline.is_compute & (timeline.rank == number))
        tiles = [(str(t.action).lstrip("0123456789")[0], t.start, t.end) for t in mine]
        zero = base - timeline.epoch
        assert tiles == [
            (kind, start + zero, end + zero) for kind, start, end in sorted(rank.tiles, key=lambda t: t[1])
        ]
    of = by_hand.figures(ranks)
    assert {
        "makespan_ns": step["makespan_ns"],
        "busy_ns": step["busy_ns"],
        "global_idle_ns": step["global_idle_ns"],
        "span_ns": step["span_ns"],
        "in_span_idle_ns": step["in_span_idle_ns"],
        "waited_ns": step["waited_ns"],
        "transfer_ns": step["transfer_ns"],
    } == {
        "makespan_ns": of.makespan,
        "busy_ns": of.busy,
        "global_idle_ns": of.global_idle,
        "span_ns": of.span,
        "in_span_idle_ns": of.in_span_idle,
        "waited_ns": of.waited,
        "transfer_ns": of.transfer,
    }
    assert step["bubble_fraction"] == pytest.approx(of.bubble, rel=1e-12)
    assert min(of.waited) > 0
    assert min(of.transfer) > 0
