"""Tables are never wider than their terminal, and lose nothing in a narrow one."""

from __future__ import annotations

import io
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipetrace.report.layout import in_groups, table_of

HEADS = ["busy", "global idle", "warm-up\nin-span", "mean,\nfreed at I", "peak, freed at W"]


def printed(columns: int, rows: list[list[str]], width: int) -> list[str]:
    head = ["rank", *(HEADS[index % len(HEADS)] for index in range(columns))]
    to = Console(file=io.StringIO(), width=width, color_system=None, _environ={})
    to.print(table_of(head, rows, "in ms: a caption\nof two lines"))
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue().splitlines()


@given(st.integers(1, 9), st.integers(0, 4), st.integers(24, 120), st.data())
def test_every_figure_is_there_at_any_width(columns: int, ranks: int, width: int, data: st.DataObject) -> None:
    figure = st.integers(0, 10**9).map(str)
    rows = [[f"r{rank}", *data.draw(st.lists(figure, min_size=columns, max_size=columns))] for rank in range(ranks)]
    lines = printed(columns, rows, width)
    assert max(map(len, lines)) <= width
    for row in rows:
        told = [line.split()[1:] for line in lines if line.split()[:1] == row[:1]]
        assert list(chain.from_iterable(told)) == row[1:]
    assert " ".join(" ".join(lines).split()).endswith("in ms: a caption of two lines")


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(0, 20), st.integers(1, 80), st.integers(0, 3))
def test_groups_hold_every_column_once_in_order(widths: list[int], name: int, room: int, gap: int) -> None:
    groups = in_groups(widths, name, room, gap=gap)
    assert list(chain.from_iterable(groups)) == list(range(len(widths)))
    for group in groups:
        assert len(group) <= 1 or name + sum(widths[index] + gap for index in group) <= room
