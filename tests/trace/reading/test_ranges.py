"""Labels and marks of steps in a rank's trace."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipetrace.trace.labels import Labels, LabelStyle
from pipetrace.trace.reading.events import Collector, Event
from pipetrace.trace.reading.model import WHOLE_TRACE
from pipetrace.trace.reading.ranges import ranges_of
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, event, trace_of

PATTERN = r"fwd (?P<microbatch>\d)"


def collected(*rows: tuple[str, str, int, int | None], category: str = "user_annotation") -> Any:
    collector = Collector()
    collector.add(
        [
            Event(ph, name, category, Decimal(start), None if length is None else Decimal(length), pid=1, tid=1)
            for ph, name, start, length in rows
        ]
    )
    return collector


def test_halves_of_ranges_are_closed_in_the_order_of_nvtx() -> None:
    collector = collected(
        ("B", "fwd 0", 1, None),
        ("B", "inner", 2, None),
        ("E", "", 3, None),
        ("E", "", 9, None),
        ("E", "", 11, None),
        ("B", "bwd 0", 12, None),
    )
    found = ranges_of(collector.finish(), 0, Labels([PATTERN]), is_ours=False)
    assert [(f.start, f.end) for f in found.labels] == [(1000, 9000)]
    assert found.style is LabelStyle.PATTERN
    assert collector.unclosed == 2


def test_a_label_that_stands_twice_is_taken_once() -> None:
    found = ranges_of(collected(*[("X", "PP:0F0", 1, 2)] * 3).finish(), 0, Labels(), is_ours=False)
    assert (len(found.labels), found.repeated) == (1, 2)
    assert list(found.windows) == [WHOLE_TRACE]


@pytest.mark.parametrize("category", ["gpu_user_annotation", "cpu_op", "kernel"])
def test_what_is_no_range_of_the_host_is_no_label(category: str) -> None:
    found = ranges_of(collected(("X", "PP:0F0", 1, 2), category=category).finish(), 0, Labels(), is_ours=False)
    assert found.labels == []


def write(tmp_path: Path, events: list[dict[str, Any]]) -> Path:
    path = tmp_path / "rank0.json"
    path.write_text(dump(trace_of(0, 1, events)))
    return path


def test_steps_that_nothing_marks_are_cut_where_all_begins_again(tmp_path: Path) -> None:
    events = [
        event(f"PP:0{kind}{m}", 1000 * step + 100 * m + (50 if kind == "B" else 0), 1000 * step + 100 * m + 60)
        for step in range(3)
        for m in range(2)
        for kind in "FB"
    ]
    recording = read_recording([write(tmp_path, events)])
    assert recording.step_names == ("step 0", "step 1", "step 2")
    assert [len(step) for step in recording.steps] == [4, 4, 4]
    # A step that was given up after its first forward is none.
    given_up = read_recording([write(tmp_path, [*events, event("PP:0F0", 9000, 9001)])])
    assert given_up.step_names == recording.step_names
    assert any("1 of 4 steps are not whole" in line for line in given_up.missing)
    # Where a backward stands once too often there is no telling.
    again = read_recording([write(tmp_path, [*events, event("PP:0B1", 9000, 9001)])])
    assert again.step_names == (WHOLE_TRACE,)
    assert any("stood more than once" in note for note in again.notes)


def test_microbatches_that_labels_do_not_name_are_counted_in_each_step(tmp_path: Path) -> None:
    events = []
    for step in range(2):
        at = 1000 * step
        events.append(event(f"ProfilerStep#{step}", at, at + 900))
        events += [event("forward_step", at + 10 * m, at + 10 * m + 5) for m in range(1, 4)]
        events += [event("backward_step", at + 500 + 10 * m, at + 505 + 10 * m) for m in range(1, 4)]
    recording = read_recording([write(tmp_path, events)], labels=["forward_step", "backward_step"])
    for timeline in recording.steps:
        assert {str(tile.action) for tile in timeline} == {"0F0", "0F1", "0F2", "0B0", "0B1", "0B2"}
