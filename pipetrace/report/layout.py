"""Tables of the terminal, without markup: what a user named is shown as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table


def named_values(pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and their values, one a line, without markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for name, value in pairs:
        # As text: what a user named is no markup.
        table.add_row(Text(name), Text(value))
    return table


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Figures:
    """A table whose first column is a name and whose others are figures, without markup."""
    return Figures(head, rows, caption)


class Figures:
    """A table that is never wider than its terminal: what does not fit comes in further ones below, names repeated.

    Args:
        head: Of each column; the first is of names, the others of figures.
        rows: Texts, one a column.
        caption: Below all of them.
    """

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
        self.head, self.rows, self.caption = head, rows, caption
        cells = [max((len(row[index]) for row in rows), default=0) for index in range(len(head))]
        self._least = [max(cell, *map(len, name.split())) for name, cell in zip(head, cells, strict=True)]
        self._most = [max(cell, *map(len, name.split("\n"))) for name, cell in zip(head, cells, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        room = options.max_width
        groups = [
            [0, *(index + 1 for index in group)] for group in in_groups(self._least[1:], self._least[0], room, gap=_GAP)
        ]
        if len(groups) == 1:
            yield self._table(groups[0], self.caption, room)
            return
        for group in groups:
            yield self._table(group, "", room)
            yield Text("")
        yield Text(self.caption.replace("\n", " "), "dim italic")

    def _table(self, columns: Sequence[int], caption: str, room: int) -> Table:
        """Those columns."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD,
            caption=Text(caption) if caption else None,
            caption_justify="left",
            pad_edge=False,
            show_edge=False,
        )
        widths = {index: self._most[index] for index in columns}
        while sum(widths.values()) + _GAP * (len(columns) - 1) > room:
            widest = max((i for i in columns if widths[i] > self._least[i]), key=lambda i: widths[i], default=None)
            if widest is None:
                break
            widths[widest] -= 1
        for index in columns:
            table.add_column(Text(self.head[index]), justify="left" if index == 0 else "right", width=widths[index])
        for row in self.rows:
            table.add_row(*(Text(row[index], no_wrap=True) for index in columns))
        return table


_GAP = 3
"""Columns between two columns of a table of rich's: padding on both sides, and a divider that is not seen."""


def in_groups(widths: Sequence[int], name: int, room: int, *, gap: int) -> list[list[int]]:
    """Which columns stand beside each other, so that with the names before them no line is longer than `room`.

    Args:
        widths: Of the columns behind the names.
        name: Width of the names.
        room: Columns of the terminal.
        gap: Between two columns.

    Returns:
        Indices of `widths`, in groups of one at least.

    >>> in_groups([5, 5, 5], name=4, room=20, gap=1)
    [[0, 1], [2]]
    """
    groups: list[list[int]] = [[]]
    used = name
    for index, width in enumerate(widths):
        if groups[-1] and used + gap + width > room:
            groups.append([])
            used = name
        groups[-1].append(index)
        used += gap + width
    return groups
