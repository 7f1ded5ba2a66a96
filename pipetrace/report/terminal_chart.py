"""The tile chart in a terminal: a row a rank, cells in proportion to time.

With colour a kind is its background and a tile says its microbatch; without, a tile says its kind's letter and its
microbatch, and reads as plain text; every second chunk of a rank has small letters. Sixteen colours are too few to do
without the letters, and get both. What has no room is cut out or shaded, see `terminal_layout`, and the chart says so.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import NO_ACTION, IntArray
from pipetrace.report.chunks import chunks_of, legend_of_chunks
from pipetrace.report.colours import HUES, MIXED, Group, groups_of
from pipetrace.report.console import NARROWEST
from pipetrace.report.terminal_cells import IDLE, SHADES, WAITS, Palette, Row, Tally, cut_text, most_have_room, swatch
from pipetrace.report.terminal_layout import Band, Layout, layout_of
from pipetrace.report.units import TimeUnit, unit_for
from pipetrace.timeline import UNKNOWN, Lane, Timeline

if TYPE_CHECKING:
    from rich.text import Text


def chart(timeline: Timeline, *, width: int, colour: bool, basic: bool = False, title: str = "") -> Text:
    """The chart of one timeline; see `charts`."""
    return charts([(title, timeline)], width=width, colour=colour, basic=basic)


def charts(timelines: Sequence[tuple[str, Timeline]], *, width: int, colour: bool, basic: bool = False) -> Text:
    """Tile charts below each other on one scale, each from its own first action, with time axis and legend.

    Args:
        timelines: Title, which may be empty, and timeline of each.
        width: Columns that no line exceeds; 24 at least are used.
        colour: Whether the terminal shows colours; without, the text alone says everything.
        basic: Whether they are sixteen; then the text says everything too.
    """
    from rich.text import Text

    palette = (Palette.BASIC if basic else Palette.FULL) if colour else Palette.PLAIN
    width = max(width, NARROWEST)
    gutter = len(f"rank {max(t.ranks for _, t in timelines) - 1} ")
    compute = [_compute_lane(timeline) for _, timeline in timelines]
    chunks = [chunks_of(tiles) for tiles in compute]
    # A half block has no room for the two halves of a pair.
    paired = any((tiles.partner != NO_ACTION).any() for tiles in compute)
    layout = layout_of(compute, width - gutter, halves=palette is Palette.FULL and not paired)
    unit = unit_for(max((int(tiles.end.max(initial=0)) for tiles in compute), default=0))
    text = Text(no_wrap=True, overflow="crop")
    tally, cut = Tally(numbered=most_have_room(compute, layout)), 0.0
    parts = zip(timelines, compute, chunks, layout.bands, strict=True)
    for index, ((title, timeline), tiles, held, bands) in enumerate(parts):
        if title:
            text.append(f"{title}\n", "bold")
        rows = list(_rows(timeline, tiles))
        for band in bands:
            for name, mine, waits in rows:
                text.append(f"{name} ".rjust(gutter))
                for window in band:
                    if window.cut:
                        text.append(cut_text(mine, layout, window), "dim")
                        continue
                    row = Row(layout, window, palette, held, tally)
                    row.draw(mine, waits)
                    row.append_to(text)
                text.append("\n")
            # Charts that are whole share the last one's axis.
            if len(bands) > 1 or index == len(timelines) - 1 or any(window.cut for window in band):
                text.append_text(_axis(layout, band, gutter, unit))
        cut = max([cut, *(len(window) * layout.step for band in bands for window in band if window.cut)])
    said = "" if layout.overview else legend_of_chunks(chunks, letters=palette is not Palette.FULL)
    text.append_text(_legend(compute, layout, tally, palette, said, width))
    notes = _notes(layout, tally, palette, cut, gutter)
    if any((timeline.lane == Lane.ALL_TO_ALL).any() for _, timeline in timelines):
        told = "all-to-alls of the rank above; a attn, m mlp, d dispatch, c combine"
        if layout.overview or layout.per_column == 2:
            told = "all-to-alls, dispatch and combine, of the rank above"
        notes.insert(0, f"a2a: {told}")
    for note in notes:
        for line in textwrap.wrap(note, width):
            text.append(f"\n{line}", "dim")
    return text


def _rows(timeline: Timeline, compute: Timeline) -> Iterator[tuple[str, Timeline, tuple[IntArray, IntArray]]]:
    """Name, tiles and waits of each row: a rank's compute lane, and below it its all-to-alls where there are any."""
    travels = timeline.from_first_action().where((timeline.lane == Lane.ALL_TO_ALL) & (timeline.replica == 0))
    none = np.zeros(0, dtype=np.int64)
    digits = len(str(timeline.ranks - 1))
    for rank in range(timeline.ranks):
        yield f"rank {rank:<{digits}}", compute.where(compute.rank == rank), _waits(timeline, rank)
        if len(travels):
            yield "a2a", travels.where(travels.rank == rank), (none, none)


def _compute_lane(timeline: Timeline) -> Timeline:
    """The first replica's compute lane, from the first action."""
    return timeline.from_first_action().where((timeline.lane == Lane.COMPUTE) & (timeline.replica == 0))


def _waits(timeline: Timeline, rank: int) -> tuple[IntArray, IntArray]:
    """Starts and ends of a rank's waits for a receive, from the first action."""
    mine = (timeline.rank == rank) & (timeline.lane == Lane.RECV) & (timeline.waited != UNKNOWN)
    mine &= timeline.replica == 0
    return timeline.waited[mine] - timeline.span[0], timeline.end[mine] - timeline.span[0]


def _axis(layout: Layout, band: Band, gutter: int, unit: TimeUnit) -> Text:
    """Times below the cells in which they lie, some ten columns apart."""
    from rich.text import Text

    column = layout.step * layout.per_column / unit.ns
    least = 10 * column
    power = 10.0 ** math.floor(math.log10(least))
    tick = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)
    line, named = " " * gutter, False
    for window in band:
        length = layout.columns(window)
        if window.cut:
            line += unit.text(_rounded(len(window) * layout.step)).center(length)[:length]
            continue
        part = [" "] * length
        zero = window.first * layout.step / unit.ns
        count = math.ceil(zero / tick - 1e-6)
        while (at := round((count * tick - zero) / column)) < length:
            label = f"|{count * tick:,.10g}" + ("" if named else f" {unit.name}")
            if at + len(label) <= length:
                part[at : at + len(label)] = label
                named = True
            count += 1
        line += "".join(part)
    return Text(line.rstrip() + "\n", "dim")


def _legend(
    compute: Sequence[Timeline], layout: Layout, tally: Tally, palette: Palette, chunks: str, width: int
) -> Text:
    from rich.text import Text

    seen: set[int] = set()
    for tiles in compute:
        seen |= set(np.unique(groups_of(tiles.code)).tolist())
        seen |= set(np.unique(groups_of(tiles.partner[tiles.partner != NO_ACTION])).tolist())
    entries = []
    for group in sorted(seen):
        hue = HUES[Group(group)]
        if palette is Palette.PLAIN:
            entries.append(Text(hue.legend if hue.legend[0] == hue.letter else f"{hue.letter} {hue.legend}"))
        else:
            said = hue.legend.removeprefix(f"{hue.letter} ") if palette is Palette.BASIC else hue.legend
            entries.append(Text.assemble(swatch(hue, palette), f" {said}"))
    plain = palette is not Palette.FULL
    if tally.shaded:
        if palette is not Palette.PLAIN:
            entries.append(
                Text.assemble(("██", MIXED.base if palette is Palette.FULL else MIXED.basic), " several kinds")
            )
        entries.append(Text(f"{SHADES} how busy"))
    elif any((tiles.partner != NO_ACTION).any() for tiles in compute):
        how = sorted(tally.pairs) if plain else ["two kinds in one tile"]
        entries.append(Text(f"{' or '.join(how)}: overlapped pair"))
    if chunks:
        forward = HUES[Group.F]
        dark, light = (("  " * (not plain), f"on {fill}") for fill in (forward.dark, forward.light))
        entries.append(Text.assemble(dark, light, " " * (not plain) + chunks))
    if tally.waits:
        wait = HUES[Group.WAIT]
        sample = ("  ", f"on {wait.base}") if layout.per_column == 2 else (WAITS, "")
        entries.append(Text.assemble(sample, f" {wait.legend}"))
    entries.append(Text(f"{IDLE} idle" if plain else "blank: idle"))
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


def _notes(layout: Layout, tally: Tally, palette: Palette, cut: float, gutter: int) -> list[str]:
    column = layout.step * layout.per_column
    length = unit_for(round(column)).text(column)
    wider = f"{layout.whole + gutter:,} columns, or a page (gen or diff, -o page.html)"
    if layout.overview:
        unread = "holds several tiles, whose order cannot be read at this width"
        return [f"a cell is {length} and {unread}; for each tile: {wider}"]
    notes = []
    if cut:
        left_out = unit_for(round(cut)).text(_rounded(cut))
        upto = "up to " if len(layout.bands) > 1 else ""
        notes.append(f"⋯%⋯ {upto}{left_out} cut out, and how busy the rank is in them; for all of it: {wider}")
    if tally.hidden:
        notes.append(f"tiles too short to be seen: {tally.hidden:,}; a cell is {length}")
    if layout.per_column == 2:
        half = unit_for(round(layout.step)).text(layout.step)
        notes.append(f"half a cell is {half}" + ("" if cut else f"; for microbatches: {wider}"))
    elif tally.cut:
        how = "cut to their last digits" if palette is Palette.FULL else "left out"
        notes.append(f"microbatch numbers without room are {how}")
    return notes


def _rounded(time: float) -> int:
    """A length that is no figure of the schedule, to three digits."""
    digits = 10 ** max(0, math.floor(math.log10(time)) - 2) if time >= 1 else 1
    return round(time / digits) * digits
