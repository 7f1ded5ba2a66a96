"""Steps that nothing marks, in recordings that begin and end in the middle of one."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipetrace
from pipetrace.timeline import Timeline
from pipetrace.trace.torch_profiler import Recording, read_recording
from tests.trace.recorded import START, dump, event, labels, trace_of

STEPS = 4
APART = 10_000  # ns from the end of a step to the next one's first action


def recorded(folder: Path, timeline: Timeline, begins: int, ends: int, *, host: str | None = None) -> Recording:
    """What is left of four steps between two times, in ns; the labels of what was under way then are lost."""
    every = timeline.makespan + APART
    for rank in range(timeline.ranks):
        events = [
            one
            for step in range(STEPS)
            for one in labels(timeline, rank, step, step * every)
            if not one["name"].startswith("ProfilerStep")
            and begins <= start_of(one)
            and start_of(one) + int(float(one["dur"].strip("#")) * 1000) <= ends
        ]
        name = "here" if host is None else f"{host}{rank}"
        (folder / f"rank{rank}.json").write_text(dump(trace_of(rank, timeline.ranks, events, host_name=name)))
    return read_recording([folder])


def start_of(one: dict[str, str]) -> int:
    whole, _, rest = one["ts"].strip("#").partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0")) - START


def compute_of(timeline: Timeline) -> dict[str, tuple[int, int, int]]:
    tiles = timeline.from_first_action()
    return {str(t.action): (t.rank, t.start, t.end) for t in tiles.where(tiles.is_compute)}


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "interleaved", "zbv", "chimera", "dualpipe"])
@pytest.mark.parametrize(("first", "last"), [(0.0, 4.0), (0.45, 3.4), (0.9, 4.0), (0.0, 3.15), (0.2, 2.7)])
def test_only_whole_steps_come_out(name: str, first: float, last: float, tmp_path: Path) -> None:
    ideal = pipetrace.simulate(pipetrace.build(name, 4, 8), pipetrace.parse_costs("F=1,I=1,W=1", p2p=100_000))
    ideal = ideal.from_first_action()
    every = ideal.makespan + APART
    recording = recorded(tmp_path, ideal, int(first * every) - 1, int(last * every) + 1)
    whole = 4 - (first > 0) - (last < 4) - (last < 3)
    assert len(recording.steps) == whole
    for step in recording.steps:
        assert compute_of(step) == compute_of(ideal)
        assert step.is_timed.sum() == ideal.is_timed.sum()
    partial = [line for line in recording.missing if "not whole" in line]
    assert len(partial) == (1 if first or last < 4 else 0)
    assert not any("more than once" in note for note in recording.notes)


def test_a_rank_that_has_a_part_more_than_the_others(tmp_path: Path) -> None:
    """The last rank of GPipe's first step is done before the first one: steps go together by their time."""
    ideal = pipetrace.simulate(pipetrace.build("gpipe", 4, 4), pipetrace.parse_costs("F=1,B=2")).from_first_action()
    of_last = ideal.where(ideal.rank == 3)
    begins = int(of_last.end.max())
    recording = recorded(tmp_path, ideal, begins, 10**12)
    assert recording.step_names == ("step 1", "step 2", "step 3")
    assert all(compute_of(step) == compute_of(ideal) for step in recording.steps)
    # Where ranks' clocks have nothing to do with each other this cannot be told.
    for rank in range(4):
        shift = rank * 10**10
        events = [
            event(f"PP:{tile.action}", tile.start + shift + of * 10**8, tile.end + shift + of * 10**8)
            for of in range(3 if rank else 2)
            for tile in ideal.where(ideal.rank == rank)
        ]
        (tmp_path / f"rank{rank}.json").write_text(dump(trace_of(rank, 4, events, host_name=f"host{rank}")))
    assert any(
        "which of them go together on all ranks could not be told" in line
        for line in read_recording([tmp_path]).missing
    )


def test_two_steps_that_begin_at_one_moment(tmp_path: Path) -> None:
    # As where a time was damaged: nothing may be left for the first of the two.
    events = [event("PP:0F0", 0, 10), event("PP:0F0", 0, 4), event("PP:0B0", 20, 30)]
    (tmp_path / "rank0.json").write_text(dump(trace_of(0, 1, events)))
    of = read_recording([tmp_path])
    assert sum(len(step) for step in of.steps) >= 2
