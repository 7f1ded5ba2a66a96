"""Tables of the terminal, without markup: what a user named is shown as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """A table whose first column is a name and whose others are figures, without markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, caption=Text(caption), caption_justify="left", pad_edge=False, show_edge=False)
    for index, name in enumerate(head):
        table.add_column(
            Text(name), justify="left" if index == 0 else "right", min_width=len(max(name.split(), key=len))
        )
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    return table
