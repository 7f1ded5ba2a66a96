"""One rank's cells in the terminal: tiles drawn one by one, or how busy each cell is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, code_microbatch, code_part
from pipetrace.report.chunks import Chunks
from pipetrace.report.colours import HUES, MIXED, PART_LETTERS, Group, Hue, Shade, groups_of
from pipetrace.report.heatmap import covered_fraction
from pipetrace.report.marks import FloatArray
from pipetrace.report.terminal_layout import CUT_COLUMNS, Layout, Window
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from rich.text import Text

IDLE, WAITS = ".", "~"
SHADES = "░▒▓█"
Label = tuple[Shade, str, str]
"""A tile's look, the letter of its part of a layer if it is one, and its microbatch."""

_NONE, _ALL = 0.03, 0.97  # share of a cell that counts as nothing, and as everything
_ALIKE = 0.2  # how far apart the shares of neighbours with one shade may be


class Palette(Enum):
    """What a terminal can show: text alone, sixteen colours besides, or colours enough to stand for the letters."""

    PLAIN = 0
    BASIC = 1
    FULL = 2


@dataclass(slots=True)
class Tally:
    """What a chart could not show, and what it has shown.

    Args:
        hidden: Tiles too short for a cell.
        cut: Tiles without room for their microbatch.
        numbered: Whether those that have room tell it.
        waits: Whether a wait is seen.
        shaded: Whether a cell is drawn as several tiles.
        pairs: How overlapped pairs are written.
    """

    hidden: int = 0
    cut: int = 0
    numbered: bool = True
    waits: bool = False
    shaded: bool = False
    pairs: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Row:
    """The cells of a window on one rank.

    Args:
        layout: How time becomes cells.
        window: Which cells.
        palette: What the terminal can show.
        chunks: Of the timeline.
        tally: Added to.
    """

    layout: Layout
    window: Window
    palette: Palette
    chunks: Chunks
    tally: Tally
    cells: list[str] = field(init=False)
    styles: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = [" " if self.palette is Palette.FULL else IDLE] * len(self.window)
        self.styles = [""] * len(self.window)

    def draw(self, tiles: Timeline, waits: tuple[IntArray, IntArray]) -> None:
        """Draws the waits for a receive, and over them the tiles.

        Args:
            tiles: The rank's compute lane, from the first action.
            waits: Starts and ends of its waits.
        """
        firsts, lasts = (self._inside(self.layout.cells(times)).tolist() for times in waits)
        for first, last in zip(firsts, lasts, strict=True):
            self._write(first, WAITS * (last - first), _foreground(HUES[Group.WAIT], self.palette))
        if self.layout.overview:
            self._shade(tiles)
        else:
            self._tiles(tiles)
        self.tally.waits |= WAITS in self.cells
        if self.layout.per_column == 2:
            self._halve()

    def append_to(self, text: Text) -> None:
        """Adds the row to a text, cells of one style at once."""
        first = 0
        for cell in range(1, len(self.cells) + 1):
            if cell == len(self.cells) or self.styles[cell] != self.styles[first]:
                text.append("".join(self.cells[first:cell]), self.styles[first] or None)
                first = cell

    def _inside(self, cells: IntArray) -> IntArray:
        inside: IntArray = np.clip(cells, self.window.first, self.window.last) - self.window.first
        return inside

    def _tiles(self, tiles: Timeline) -> None:
        first, last = self.layout.cells(tiles.start), self.layout.cells(tiles.end)
        inside = (last >= self.window.first) & (first < self.window.last)
        self.tally.hidden += int(((first == last) & inside).sum())
        seen = np.flatnonzero((first < last) & (last > self.window.first) & inside)
        begun = (first[seen] < self.window.first).tolist()
        spans = zip(self._inside(first[seen]).tolist(), self._inside(last[seen]).tolist(), strict=True)
        paired = (tiles.partner[seen] != NO_ACTION).tolist()
        halves = zip(*(self._labels(codes[seen]) for codes in (tiles.code, tiles.partner)), strict=True)
        for (at, to), goes_on, pair, (forward, backward) in zip(spans, begun, paired, halves, strict=True):
            if goes_on:
                # Named in the window where it began: a second name would be a second tile.
                rest = " " * (to - at) if self.palette is Palette.FULL else _filled("", to - at)
                self._write(at, rest, self._style(forward[0]))
            elif pair:
                self._pair(at, to, forward, backward)
            else:
                self._tile(at, to, *forward)

    def _labels(self, codes: IntArray) -> list[Label]:
        numbers = ("" if microbatch < 0 else str(microbatch) for microbatch in code_microbatch(codes).tolist())
        parts = PART_LETTERS[np.where(codes == NO_ACTION, 0, code_part(codes))].tolist()
        return list(zip(self.chunks.shades(codes), parts, numbers, strict=True))

    def _tile(self, first: int, last: int, shade: Shade, part: str, number: str) -> None:
        width = last - first
        if self.palette is Palette.FULL:
            label = part + number
            if len(label) > width:
                self.tally.cut, label = self.tally.cut + 1, part or number[-width:]
            self._write(first, label.center(width), self._style(shade))
            return
        label = f"{shade.letter}{part}{number}"
        if len(label) > width or not self.tally.numbered:
            self.tally.cut, label = self.tally.cut + 1, f"{shade.letter}{part}"[:width]
        self._write(first, _filled(label, width), self._style(shade))

    def _pair(self, first: int, last: int, forward: Label, backward: Label) -> None:
        width = last - first
        if self.palette is Palette.FULL:
            if width == 1:
                self._write(first, "▌", f"{forward[0].fill} on {backward[0].fill}")
                return
            middle = first + width // 2
            for at, to, (shade, _, number) in ((first, middle, forward), (middle, last, backward)):
                fits = len(number) <= to - at
                self.tally.cut += not fits
                self._write(at, (number if fits else "").center(to - at), self._style(shade))
            return
        letters = [shade.letter for shade, *_ in (forward, backward)]
        halves = [letter + number for letter, (*_, number) in zip(letters, (forward, backward), strict=True)]
        if len("".join(halves)) > width or not self.tally.numbered:
            self.tally.cut, halves = self.tally.cut + 1, letters if width > 1 else ["&", ""]
        if len("".join(halves)) < width:
            halves[0] += "&"
        self.tally.pairs.add("&" if "&" in halves[0] else "FB" if halves == letters else "F0B0")
        filled = _filled("".join(halves), width)
        self._write(first, filled[: len(halves[0])], self._style(forward[0]))
        self._write(first + len(halves[0]), filled[len(halves[0]) :], self._style(backward[0]))

    def _shade(self, tiles: Timeline) -> None:
        """How busy each cell is; its kind only where it holds no other, as more would be an order that is not there."""
        groups = groups_of(tiles.code)
        # A pair is two kinds in one tile: more than a cell of an overview can say.
        groups[tiles.partner != NO_ACTION] = -1
        kinds = np.unique(groups).tolist()
        span = self.layout.step * len(self.window)
        covered = [covered_fraction(tiles.where(groups == kind), 0, span, len(self.window)) for kind in kinds]
        shares = np.array(covered).reshape(len(kinds), len(self.window))
        busy = shares.sum(axis=0)
        for cell, (kind, shade) in enumerate(zip(_only(shares, kinds), _shades(busy), strict=True)):
            if not shade:
                continue
            hue = MIXED if kind is None else HUES[Group(kind)]
            whole = shade == len(SHADES)
            if kind is not None and whole:
                letter = " " if self.palette is Palette.FULL else hue.letter
                self._write(cell, letter, _background(hue, self.palette))
            else:
                self.tally.shaded = True
                self._write(cell, SHADES[shade - 1], _foreground(hue, self.palette))

    def _halve(self) -> None:
        """Two cells a column, as half blocks."""
        if len(self.cells) % 2:
            self.cells.append(" ")
            self.styles.append("")
        cells, styles = [], []
        for cell in range(0, len(self.cells), 2):
            left, right = (self._colour(which) for which in (cell, cell + 1))
            if left == right:
                cells.append(" ")
                styles.append(f"on {left}" if left else "")
            elif not left:
                cells.append("▐")
                styles.append(right)
            else:
                cells.append("▌")
                styles.append(f"{left} on {right}" if right else left)
        self.cells, self.styles = cells, styles

    def _colour(self, cell: int) -> str:
        if self.cells[cell] == WAITS:
            return HUES[Group.WAIT].base
        return self.styles[cell].rpartition("on ")[2]

    def _style(self, shade: Shade) -> str:
        if self.palette is Palette.FULL:
            return f"{shade.ink} on {shade.fill}"
        return _background(shade.hue, self.palette)

    def _write(self, first: int, label: str, style: str) -> None:
        for cell, character in enumerate(label, first):
            self.cells[cell], self.styles[cell] = character, style


def cut_text(tiles: Timeline, layout: Layout, window: Window) -> str:
    """What stands where a row is cut: how busy the rank is in what is left out."""
    start, end = (round(cell * layout.step) for cell in (window.first, window.last))
    busy = float(covered_fraction(tiles, start, end - start, 1)[0])
    # Rounded down: a rank with any idle time is not 100 % busy.
    return f"⋯{int(100 * busy + 1e-6):>3}%⋯".center(CUT_COLUMNS)


def most_have_room(compute: Sequence[Timeline], layout: Layout) -> bool:
    """Whether most tiles have room for letter and microbatch: a few that tell it look as if they meant something."""
    room = total = 0
    for tiles in compute:
        width = layout.cells(tiles.end) - layout.cells(tiles.start)
        digits = np.char.str_len(code_microbatch(tiles.code).astype(np.str_)) + (code_part(tiles.code) > 0)
        room, total = room + int((width >= 1 + digits).sum()), total + len(tiles)
    return 2 * room >= total


def swatch(hue: Hue, palette: Palette) -> tuple[str, str]:
    """Text and style of a hue's sample in a legend."""
    return ("  " if palette is Palette.FULL else hue.letter), _background(hue, palette)


def _filled(label: str, width: int) -> str:
    # A line to the tile's end, a blank before the next: idle is dotted.
    return (label.ljust(width - 1, "-") if width > len(label) else label).ljust(width)


def _only(shares: FloatArray, kinds: list[int]) -> list[int | None]:
    """The kind of each cell that holds no other; None for the rest, and where it could be read as an order."""
    some = shares > _NONE
    busy = shares.sum(axis=0) > _NONE
    only = [
        kinds[int(shares[:, cell].argmax())] if some[:, cell].sum() == 1 else None for cell in range(shares.shape[1])
    ]
    only = [None if kind is not None and kind < 0 else kind for kind in only]
    # Among mixed cells, one that happens to lie inside a tile tells of the cells' grid and not of the schedule.
    beside = [-2, *(kind if at_work else -2 for kind, at_work in zip(only, busy.tolist(), strict=True)), -2]
    return [
        kind if kind is None or kind in (before, after) or before == after == -2 else None
        for kind, before, after in zip(only, beside[:-2], beside[2:], strict=True)
    ]


def _shades(busy: FloatArray) -> list[int]:
    """The shade of each cell, from 0, idle, to 4, busy throughout."""
    shades = np.where(busy >= _ALL, len(SHADES), 0)
    partial = (busy > _NONE) & (busy < _ALL)
    edges = np.flatnonzero(np.diff(partial.astype(np.int64), prepend=0, append=0)).reshape(-1, 2).tolist()
    for first, last in edges:
        run = busy[first:last]
        if run.size >= 4:
            # The cells beat with the gaps of an even drain; their neighbours' mean does not.
            padded = np.concatenate([run[:1], run, run[-1:]])
            run = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
        at = 0
        while at < run.size:
            to = at + 1
            while to < run.size and np.ptp(run[at : to + 1]) <= _ALIKE:
                to += 1
            # One shade for neighbours that are about alike: rounded one by one, they would beat as well.
            shades[first + at : first + to] = np.clip(np.round(4 * run[at:to].mean()), 1, len(SHADES) - 1)
            at = to
    drawn: list[int] = shades.tolist()
    return drawn


def _background(hue: Hue, palette: Palette) -> str:
    if palette is Palette.PLAIN:
        return ""
    return f"{hue.ink} on {hue.base}" if palette is Palette.FULL else f"{hue.basic_ink} on {hue.basic}"


def _foreground(hue: Hue, palette: Palette) -> str:
    if palette is Palette.PLAIN:
        return ""
    return hue.basic if palette is Palette.BASIC or hue is HUES[Group.WAIT] else hue.base
