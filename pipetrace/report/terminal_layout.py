"""How the time of a chart becomes the cells of a terminal.

Tiles that have a cell each are drawn one by one. Where a row has too few cells for that, the row is wrapped into
bands, or its middle is cut out, so that warm-up and drain are still drawn tile by tile. Where not even those have
room, a cell holds several tiles and says no more than how busy it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind
from pipetrace.timeline import Timeline

CUT_COLUMNS = 8
_MOST_LINES = 34  # of ranks and axes; with legend and notes a chart of 16 ranks stays below 40
_WIDEST_TILE = 8  # columns; wider tiles only push the ranks' ends apart
_NEGLIGIBLE = 0.05  # share of the busy time that may lie in tiles narrower than a cell


@dataclass(frozen=True, slots=True)
class Window:
    """Cells first to last, exclusive: a stretch of time that is drawn, or that is cut out.

    Args:
        first, last: Cells, counted from the first action.
        cut: Whether it is cut out.
    """

    first: int
    last: int
    cut: bool = False

    def __len__(self) -> int:
        return self.last - self.first


Band = tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What is drawn where.

    Args:
        step: ns of a cell.
        per_column: Cells of a column: 2 where half blocks show two.
        bands: For each timeline the rows that it is wrapped into.
        overview: Whether a cell holds several tiles.
        whole: Columns in which every tile would have a cell.
    """

    step: float
    per_column: int
    bands: tuple[tuple[Band, ...], ...]
    overview: bool
    whole: int

    def cells(self, time: IntArray) -> IntArray:
        """The cell whose left edge is nearest to each time; a tile of a cell's length or more has one at least."""
        # Not numpy's round, which takes 1.5 and 2.5 to one cell.
        cells: IntArray = np.floor(time / self.step + (0.5 + 1e-9)).astype(np.int64)
        return cells

    def columns(self, window: Window) -> int:
        """Columns that a window takes."""
        return CUT_COLUMNS if window.cut else -(-len(window) // self.per_column)


def layout_of(compute: Sequence[Timeline], columns: int, *, halves: bool) -> Layout:
    """The layout that shows the most.

    Args:
        compute: The compute lane of each timeline, from its first action.
        columns: Columns of a row.
        halves: Whether half blocks can show two cells a column.
    """
    ends = [int(tiles.end.max()) if len(tiles) else 0 for tiles in compute]
    until = max(ends, default=0)
    durations = np.concatenate([tiles.end - tiles.start for tiles in compute])
    durations = np.sort(durations[durations > 0])
    if not durations.size:  # nothing takes time: a scale as good as any
        return Layout(1e6, 1, tuple(((Window(0, columns),),) for _ in compute), False, columns)
    busy = np.cumsum(durations)
    least = float(durations[np.searchsorted(busy, _NEGLIGIBLE * busy[-1])])
    fine = least * (1 - 1e-9)
    whole = _cells(until, fine)
    step = _step(compute, until, columns, float(np.median(durations)))
    if least >= 0.999 * step:
        cells = min(columns, _cells(until, step))
        return Layout(step, 1, tuple(((Window(0, cells),),) for _ in compute), False, whole)
    lengths, needs = [_cells(end, fine) for end in ends], [_need(tiles, fine) for tiles in compute]
    for cut, count, per_column in _choices(halves):
        bands = tuple(
            _bands(length, need, columns, count, per_column, cut) for length, need in zip(lengths, needs, strict=True)
        )
        lines = sum(len(mine) * (tiles.ranks + 1) for mine, tiles in zip(bands, compute, strict=True))
        if all(bands) and (count == 1 or lines <= _MOST_LINES):
            return Layout(fine, per_column, bands, False, whole)
    one = ((Window(0, min(columns, _cells(until, step))),),)
    return Layout(step, 1, tuple(one for _ in compute), True, whole)


def _choices(halves: bool) -> Iterator[tuple[bool, int, int]]:
    """Whether the middle is cut out, bands, and cells of a column; the better before the worse."""
    densities = (1, 2) if halves else (1,)
    if halves:
        yield False, 1, 2
    yield from ((False, 2, density) for density in densities)
    yield from ((True, count, density) for count, density in product(range(1, 5), densities))


def _cells(until: int, step: float) -> int:
    return math.ceil(until / step - 1e-6)


def _step(compute: Sequence[Timeline], until: int, columns: int, typical: float) -> float:
    """ns of a cell if everything is to stand in one row."""
    step = max(until / columns, typical / _WIDEST_TILE)
    grid = int(np.gcd.reduce(np.concatenate([t for tiles in compute for t in (tiles.start, tiles.end)])))
    # Whole cells for each tile, where all lie on one grid, draw the picture of the papers.
    if grid and (whole := min(columns * grid // until, int(_WIDEST_TILE * grid / typical))):
        snapped = grid / whole
        if until / snapped >= 0.55 * min(columns, until / step):
            step = snapped
    return step


def _need(tiles: Timeline, step: float) -> tuple[int, int]:
    """Cells of the warm-up, until every rank has begun a backward, and of the drain, from the first last forward."""
    forward = code_kind(tiles.code) == Kind.F
    backward = np.isin(code_kind(tiles.code), (Kind.B, Kind.I)) | (tiles.partner != NO_ACTION)
    begun = [int(tiles.start[backward & (tiles.rank == rank)].min(initial=1 << 62)) for rank in range(tiles.ranks)]
    last = [int(tiles.end[forward & (tiles.rank == rank)].max(initial=-1)) for rank in range(tiles.ranks)]
    end = int(tiles.end.max(initial=0))
    warm_up = max((at for at in begun if at < 1 << 62), default=0)
    drain = end - min((at for at in last if at >= 0), default=end)
    return _cells(warm_up, step), _cells(drain, step)


def _bands(
    length: int, need: tuple[int, int], columns: int, count: int, per_column: int, cut: bool
) -> tuple[Band, ...]:
    """The bands of one timeline; none where it has no room in them."""
    room = columns * per_column
    if length <= count * room:
        # Even an empty timeline has its rows.
        firsts = range(0, max(length, 1), room)
        return tuple((Window(first, max(min(first + room, length), 1)),) for first in firsts)
    less = room - CUT_COLUMNS * per_column
    if not cut or less < 2 * per_column:
        return ()
    if count == 1:
        if sum(need) > less:
            return ()
        # Whole columns on both sides of the cut.
        head = round((need[0] + (less - sum(need)) / 2) / per_column) * per_column
        tail = less - head
        return ((Window(0, head), Window(head, length - tail, True), Window(length - tail, length)),)
    # The cut ends a band, so that the drain begins a line.
    before = (count + 1) // 2
    head, tail = (before - 1) * room + less, (count - before) * room
    if need[0] > head or need[1] > tail:
        return ()
    bands: list[Band] = [(Window(first, first + room),) for first in range(0, head - less, room)]
    bands.append((Window(head - less, head), Window(head, length - tail, True)))
    bands += [(Window(first, first + room),) for first in range(length - tail, length, room)]
    return tuple(bands)
