"""The tile chart in a terminal: a row a rank, cells in proportion to time.

With colour a kind is its background and a tile says its microbatch; without, a tile says its kind's letter and its
microbatch, and reads as plain text. Where tiles are narrower than cells, a cell shows what fills most of it, and the
chart says so.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import NO_ACTION, code_microbatch
from pipetrace.report.colours import HUES, Group, groups_of, takes_alternate
from pipetrace.report.heatmap import covered_fraction
from pipetrace.report.units import unit_for
from pipetrace.timeline import UNKNOWN, Lane, Timeline

if TYPE_CHECKING:
    from rich.text import Text

IDLE, WAITS = ".", "~"
NARROWEST = 24
_WIDEST_TILE = 8  # cells; wider tiles only push the ranks' ends apart


@dataclass(frozen=True, slots=True)
class _Scale:
    """How time becomes cells.

    Args:
        step: ns of a cell.
        columns: Cells of a row.
        dense: Whether the typical tile is narrower than a cell.
        halves: Whether a cell shows two moments, as a half block; only where dense.
    """

    step: float
    columns: int
    dense: bool
    halves: bool


def chart(timeline: Timeline, *, width: int, colour: bool, title: str = "") -> Text:
    """The chart of one timeline; see `charts`."""
    return charts([(title, timeline)], width=width, colour=colour)


def charts(timelines: Sequence[tuple[str, Timeline]], *, width: int, colour: bool) -> Text:
    """Tile charts below each other on one scale, each from its own first action, with time axis and legend.

    Args:
        timelines: Title, which may be empty, and timeline of each.
        width: Cells that no line exceeds; 24 at least are used.
        colour: Whether the terminal shows colours; without, the text alone says everything.
    """
    from rich.text import Text

    gutter = len(f"rank {max(t.ranks for _, t in timelines) - 1} ")
    compute = [_compute_lane(timeline) for _, timeline in timelines]
    scale = _scale(compute, max(width, NARROWEST) - gutter, colour)
    text = Text(no_wrap=True, overflow="crop")
    seen: set[Group] = set()
    hidden = cut = 0
    waits = False
    for (title, timeline), tiles in zip(timelines, compute, strict=True):
        if title:
            text.append(f"{title}\n", "bold")
        for rank in range(timeline.ranks):
            row = _Row(scale, colour)
            row.waits(timeline, rank)
            waits |= WAITS in row.cells
            mine = tiles.where(tiles.rank == rank)
            if scale.dense:
                row.fill(mine)
            else:
                row.tiles(mine)
            hidden, cut = hidden + row.hidden, cut + row.cut
            text.append(f"rank {rank}".ljust(gutter))
            row.append_to(text)
            text.append("\n")
        seen |= {Group(group) for group in np.unique(groups_of(tiles.code)).tolist()}
        paired = tiles.partner != NO_ACTION
        seen |= {Group(group) for group in np.unique(groups_of(tiles.partner[paired])).tolist()}
    text.append_text(_axis(scale, gutter))
    pairs = any((tiles.partner != NO_ACTION).any() for tiles in compute)
    text.append_text(_legend(sorted(seen), waits, colour, pairs, max(width, NARROWEST)))
    for note in _notes(scale, hidden, cut, colour):
        for line in textwrap.wrap(note, max(width, NARROWEST)):
            text.append(f"\n{line}", "dim")
    return text


def _compute_lane(timeline: Timeline) -> Timeline:
    """The first replica's compute lane, from the first action."""
    return timeline.from_first_action().where((timeline.lane == Lane.COMPUTE) & (timeline.replica == 0))


def _scale(compute: Sequence[Timeline], columns: int, colour: bool) -> _Scale:
    until = max((int(tiles.end.max()) for tiles in compute if len(tiles)), default=0)
    durations = np.concatenate([tiles.end - tiles.start for tiles in compute])
    durations = durations[durations > 0]
    if not durations.size:
        return _Scale(1.0, columns, False, False)
    typical = float(np.median(durations))
    step = max(until / columns, typical / _WIDEST_TILE)
    grid = int(np.gcd.reduce(np.concatenate([t for tiles in compute for t in (tiles.start, tiles.end)])))
    # Whole cells for each tile, where all lie on one grid, draw the picture of the papers.
    if grid and (whole := min(columns * grid // until, int(_WIDEST_TILE * grid / typical))):
        snapped = grid / whole
        if until / snapped >= 0.55 * min(columns, until / step):
            step = snapped
    dense = typical < 0.999 * step
    return _Scale(step, min(columns, math.ceil(until / step - 1e-9)), dense, dense and colour)


class _Row:
    """One rank's cells: what stands in each, and its style."""

    def __init__(self, scale: _Scale, colour: bool) -> None:
        self.scale, self.colour = scale, colour
        self.cells = [" " if colour else IDLE] * scale.columns
        self.styles = [""] * scale.columns
        self.hidden = self.cut = 0

    def waits(self, timeline: Timeline, rank: int) -> None:
        """Marks the waits for a receive; tiles are drawn over them."""
        mine = (timeline.rank == rank) & (timeline.lane == Lane.RECV) & (timeline.waited != UNKNOWN)
        mine &= timeline.replica == 0
        zero = timeline.span[0]
        for start, end in zip(timeline.waited[mine].tolist(), timeline.end[mine].tolist(), strict=True):
            for cell in range(*self._span(start - zero, end - zero)):
                self.cells[cell] = WAITS
                self.styles[cell] = "bright_black" if self.colour else ""

    def tiles(self, tiles: Timeline) -> None:
        """Draws tile by tile, with labels."""
        columns = (tiles.start, tiles.end, tiles.code, tiles.partner)
        for start, end, code, partner in zip(*(column.tolist() for column in columns), strict=True):
            first, last = self._span(start, end)
            if first == last:
                self.hidden += 1
            elif partner != NO_ACTION:
                self._pair(first, last, code, partner)
            else:
                self._tile(first, last, code)

    def fill(self, tiles: Timeline) -> None:
        """Draws in each cell, or half of one, what fills most of it."""
        moments = 2 if self.scale.halves else 1
        bins = self.scale.columns * moments
        groups = groups_of(tiles.code)
        kinds = np.unique(groups).tolist()
        span = self.scale.step * self.scale.columns
        covered = [covered_fraction(tiles.where(groups == kind), 0, span, bins) for kind in kinds]
        share = np.array(covered).reshape(len(kinds), bins)
        idle = 1 - share.sum(axis=0)
        most = np.argmax(np.vstack([share, idle + 1e-9]), axis=0).tolist() if kinds else [0] * bins
        shown = [Group(kinds[i]) if i < len(kinds) else None for i in most]
        for cell in range(self.scale.columns):
            if not self.scale.halves:
                if (group := shown[cell]) is not None:
                    self.cells[cell] = HUES[group].letter
                continue
            left, right = shown[2 * cell], shown[2 * cell + 1]
            if left is None and right is None:
                continue
            if left is right:
                self.cells[cell], self.styles[cell] = " ", f"on {_base(left)}"
            elif right is None:
                self.cells[cell], self.styles[cell] = "▌", _base(left)
            elif left is None:
                self.cells[cell], self.styles[cell] = "▐", _base(right)
            else:
                self.cells[cell], self.styles[cell] = "▌", f"{_base(left)} on {_base(right)}"

    def append_to(self, text: Text) -> None:
        """Adds the row to a text, cells of one style at once."""
        first = 0
        for cell in range(1, len(self.cells) + 1):
            if cell == len(self.cells) or self.styles[cell] != self.styles[first]:
                text.append("".join(self.cells[first:cell]), self.styles[first] or None)
                first = cell

    def _span(self, start: int, end: int) -> tuple[int, int]:
        first, last = (max(0, min(self.scale.columns, round(at / self.scale.step))) for at in (start, end))
        return first, max(first, last)

    def _tile(self, first: int, last: int, code: int) -> None:
        hue, microbatch = HUES[_group(code)], int(code_microbatch(code))
        width, label = last - first, "" if microbatch < 0 else str(microbatch)
        if self.colour:
            if len(label) > width:
                self.cut, label = self.cut + 1, label[-1] if width == 1 else label[-width:]
            self._write(first, label.center(width), _style(code))
            return
        label = f"{hue.letter}{label}"
        if len(label) > width:
            self.cut, label = self.cut + 1, hue.letter
        # A line to the tile's end, a blank before the next: idle is dotted.
        filled = label.ljust(width - 1, "-") if width > len(label) else label
        self._write(first, filled.ljust(width), "")

    def _pair(self, first: int, last: int, forward: int, backward: int) -> None:
        width = last - first
        numbers = [str(int(code_microbatch(code))) for code in (forward, backward)]
        letters = [HUES[_group(code)].letter for code in (forward, backward)]
        if self.colour:
            if width == 1:
                self._write(first, "▌", f"{_fill(forward)} on {_fill(backward)}")
                return
            middle = first + width // 2
            for at, to, code, number in ((first, middle, forward, numbers[0]), (middle, last, backward, numbers[1])):
                fits = len(number) <= to - at
                self.cut += not fits
                self._write(at, (number if fits else "").center(to - at), _style(code))
            return
        label = "".join(letter + number for letter, number in zip(letters, numbers, strict=True))
        if len(label) > width:
            self.cut, label = self.cut + 1, "".join(letters) if width > 1 else "&"
        filled = label.ljust(width - 1, "-") if width > len(label) else label
        self._write(first, filled.ljust(width), "")

    def _write(self, first: int, label: str, style: str) -> None:
        for offset, character in enumerate(label):
            self.cells[first + offset], self.styles[first + offset] = character, style


def _group(code: int) -> Group:
    return Group(int(groups_of(np.array([code]))[0]))


def _fill(code: int) -> str:
    hue = HUES[_group(code)]
    return hue.alternate if bool(takes_alternate(np.array([code]))[0]) else hue.base


def _base(group: Group | None) -> str:
    return "default" if group is None else HUES[group].base


def _style(code: int) -> str:
    return f"{HUES[_group(code)].ink} on {_fill(code)}"


def _axis(scale: _Scale, gutter: int) -> Text:
    """Times below the cells in which they lie, some ten cells apart."""
    from rich.text import Text

    unit = unit_for(int(scale.step * scale.columns))
    least = 10 * scale.step / unit.ns
    power = 10.0 ** math.floor(math.log10(least))
    tick = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)
    line = [" "] * (scale.columns + gutter)
    count = 0
    while (at := gutter + round(count * tick * unit.ns / scale.step)) < len(line):
        label = f"|{count * tick:,.10g}" + (f" {unit.name}" if count == 0 else "")
        if at + len(label) <= len(line):
            line[at : at + len(label)] = label
        count += 1
    return Text("".join(line).rstrip() + "\n", "dim")


def _legend(groups: Sequence[Group], waits: bool, colour: bool, pairs: bool, width: int) -> Text:
    from rich.text import Text

    entries = []
    for group in groups:
        hue = HUES[group]
        if colour:
            entries.append(Text.assemble(("  ", f"on {hue.base}"), f" {hue.legend}"))
        else:
            entries.append(Text(hue.legend if hue.legend[0] == hue.letter else f"{hue.letter} {hue.legend}"))
    if pairs and not colour:
        entries.append(Text("& overlapped pair"))
    if waits:
        entries.append(Text(f"{WAITS} {HUES[Group.WAIT].legend}"))
    if not colour:
        entries.append(Text(f"{IDLE} idle"))
    text, used = Text(), 0
    for entry in entries:
        if used and used + 2 + len(entry) > width:
            text.append("\n")
            used = 0
        elif used:
            text.append("  ")
            used += 2
        text.append_text(entry)
        used += len(entry)
    return text


def _notes(scale: _Scale, hidden: int, cut: int, colour: bool) -> list[str]:
    cell = unit_for(int(scale.step))
    if scale.dense:
        half = "half a cell" if scale.halves else "a cell"
        length = scale.step / (2 if scale.halves else 1)
        return [f"{half} is {cell.text(length)}: it shows what fills most of it"]
    notes = []
    if hidden:
        notes.append(f"{hidden:,} tiles are too short to be seen: a cell is {cell.text(scale.step)}")
    if cut:
        notes.append("microbatch numbers without room are " + ("cut to their last digits" if colour else "left out"))
    return notes
