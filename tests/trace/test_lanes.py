"""Tiles that overlap go to further tracks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.trace.lanes import sub_lanes

TILES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 8)), max_size=40)


@given(TILES)
@settings(deadline=None)
def test_no_two_overlap_and_no_track_is_wasted(tiles: list[tuple[int, int, int]]) -> None:
    table = sorted((group, start, start + length) for group, start, length in tiles)
    columns = np.array(table, dtype=np.int64).reshape(-1, 3)
    numbers = sub_lanes(columns[:, 0], columns[:, 1], columns[:, 2]).tolist()
    last_end: dict[tuple[int, int], int] = {}
    for (group, start, end), number in zip(table, numbers, strict=True):
        assert last_end.get((group, number), 0) <= start
        # Every lower number is taken at this moment.
        assert all(last_end.get((group, lower), -1) > start for lower in range(number))
        last_end[group, number] = end


def test_touching_is_no_overlap() -> None:
    start = np.array([0, 5, 5, 9], dtype=np.int64)
    end = np.array([5, 5, 9, 12], dtype=np.int64)
    assert sub_lanes(np.zeros(4, dtype=np.int64), start, end).tolist() == [0, 0, 0, 0]
