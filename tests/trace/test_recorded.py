"""Events of others' recordings as slices that lie within each other or apart."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.trace.reading.events import NONE, Events
from pipetrace.trace.recorded import Recorded, recorded
from pipetrace.trace.text import strings

EVENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 30), st.integers(0, 12), st.integers(0, 2)), max_size=30)
NAMES = ("aten::mm", "kernel \n", "x" * 10_000)


def events_of(drawn: list[tuple[int, int, int, int]], stream: int = NONE) -> Events:
    thread, start, length, name = np.array(drawn, dtype=np.int64).reshape(-1, 4).T
    none, zero = np.full(thread.size, NONE), np.zeros(thread.size, dtype=np.int64)
    return Events(
        name=name,
        category=zero,
        thread=thread,
        start=start + 1000,
        end=start + length + 1000,
        correlation=none,
        stream=np.full(thread.size, stream),
        device=zero,
        forward=zero,
        names=NAMES,
        categories=("cpu_op",),
        threads=(("1", "1"), ("1", "2"), ("2", "1")),
        process_names={"1": "python"},
        thread_names={("1", "2"): "autograd"},
    )


def shown(of: Recorded) -> list[tuple[str, int, int, str]]:
    return [
        (of.lanes[int(track) - 7], int(start), int(end), name)
        for block in of.blocks(7, 3)
        for track, start, end, name in zip(
            block.track, block.start, block.end, strings(block.name, len(block)), strict=True
        )
    ]


@given(EVENTS)
@settings(deadline=None)
def test_all_that_begin_in_time_are_kept_and_none_cross(drawn: list[tuple[int, int, int, int]]) -> None:
    of = recorded(events_of(drawn), 5, zero=1000, until=20)
    expected = sorted(
        (start + 3, start + 3 + length, NAMES[name]) for _, start, length, name in drawn if 0 <= start <= 20
    )
    found = shown(of)
    assert sorted(event[1:] for event in found) == expected
    assert len(of) == len(expected)
    open_on: dict[str, list[int]] = defaultdict(list)
    last: dict[str, int] = {}
    for lane, start, end, _ in found:
        assert last.get(lane, 0) <= start
        last[lane] = start
        while open_on[lane] and open_on[lane][-1] <= start:
            open_on[lane].pop()
        assert not open_on[lane] or end <= open_on[lane][-1]
        open_on[lane].append(end)


def test_lanes_are_called_as_threads_and_streams() -> None:
    drawn = [(0, 0, 5, 0), (0, 3, 5, 0), (1, 0, 5, 0), (2, 0, 5, 0)]
    assert recorded(events_of(drawn), 0, zero=1000, until=20).lanes == (
        "python (1 1)",
        "python (1 1) (2)",
        "python autograd (1 2)",
        "2 1",
    )
    assert recorded(events_of(drawn[:1], stream=7), 0, zero=1000, until=20).lanes == ("GPU 0 stream 7",)
