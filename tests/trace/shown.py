"""A description of tracks slice by slice, as tests want it: what any writer must come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipetrace.trace.description import ARROWS, CATEGORIES
from pipetrace.trace.flows import Ends
from pipetrace.trace.text import strings
from pipetrace.trace.tracks import Tracks


class ArrowEnd(NamedTuple):
    """One end of an arrow, inside its slice."""

    id: int
    category: str
    at: int


class Slice(NamedTuple):
    """A slice with all that is shown of it."""

    pid: int
    tid: int
    name: str
    category: str
    start: int
    end: int
    args: Mapping[str, int | str]
    leaves: Sequence[ArrowEnd]
    arrives: Sequence[ArrowEnd]


def slices(tracks: Tracks) -> Iterator[Slice]:
    """All slices, track by track, each in the order of time."""
    return iter(sorted(_slices(tracks), key=lambda tile: (tile.tid, tile.start, tile.end)))


def tiles(tracks: Tracks) -> Iterator[Slice]:
    """The slices that are tiles of a timeline."""
    return (tile for tile in slices(tracks) if tile.category in ("compute", "all-to-all", "send", "recv"))


def _slices(tracks: Tracks) -> Iterator[Slice]:
    for block in tracks.blocks():
        rows = len(block)
        columns = []
        for arg in block.args:
            values = arg.value.tolist() if isinstance(arg.value, np.ndarray) else strings(arg.value, rows)
            present = [True] * rows if arg.present is None else arg.present.tolist()
            columns.append((arg.key, values, present))
        names = strings(block.name, rows)
        leaves, arrives = (_ends(tracks, ends, rows) for ends in (block.leaves, block.arrives))
        for row in range(rows):
            on = tracks.tracks[int(block.track[row])]
            yield Slice(
                on.pid,
                on.tid,
                names[row],
                CATEGORIES[int(block.lane[row])],
                int(block.start[row]),
                int(block.end[row]),
                {key: values[row] for key, values, present in columns if present[row]},
                leaves[row],
                arrives[row],
            )


def _ends(tracks: Tracks, ends: Ends, rows: int) -> list[list[ArrowEnd]]:
    found: list[list[ArrowEnd]] = [[] for _ in range(rows)]
    kinds = tracks.arrow_kind(ends.arrow)
    for row, arrow, kind, at in zip(
        *(column.tolist() for column in (ends.row, ends.arrow, kinds, ends.at)), strict=True
    ):
        found[row].append(ArrowEnd(arrow + 1, ARROWS[kind], at))
    return found
