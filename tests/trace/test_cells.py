"""Columns into bytes come to what Python's own formatting comes to."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.trace.cells import Digits, Fixed64, Literal, Table, Varint, Word, apart, joined, total
from pipetrace.trace.protobuf import varint

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 300)


@given(st.lists(st.tuples(NUMBERS, st.booleans(), st.integers(-1, 2)), max_size=30))
@settings(deadline=None)
def test_rows(drawn: list[tuple[int, bool, int]]) -> None:
    number, index = (np.array([row[i] for row in drawn], dtype=np.int64) for i in (0, 2))
    present = np.array([row[1] for row in drawn], dtype=np.bool_)
    words = [b"", b"F", b"a longer word"]
    cells = [
        Literal(b"<"),
        Digits(number),
        Literal(b" maybe ", present),
        Digits(number, present),
        Word(Table(words), index),
        Fixed64(number, present),
    ]
    expected = [
        b"<%d" % n
        + (b" maybe %d" % n if there else b"")
        + (words[i] if i >= 0 else b"")
        + (n.to_bytes(8, "little") if there else b"")
        for n, there, i in drawn
    ]
    assert apart(cells, len(drawn)) == expected
    assert total(cells, len(drawn)).tolist() == list(map(len, expected))


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.booleans()), min_size=1, max_size=30))
@settings(deadline=None)
def test_varints(drawn: list[tuple[int, bool]]) -> None:
    value = np.array([n for n, _ in drawn], dtype=np.int64)
    present = np.array([there for _, there in drawn], dtype=np.bool_)
    assert apart([Varint(value)], value.size) == [varint(n) for n, _ in drawn]
    assert apart([Varint(value, present)], value.size) == [varint(n) if there else b"" for n, there in drawn]


def test_many_rows_come_in_blocks() -> None:
    number = np.arange(300_000, dtype=np.int64)
    blocks = list(joined([Digits(number), Literal(b",")], number.size))
    assert len(blocks) > 1
    assert b"".join(blocks) == b"".join(b"%d," % n for n in range(300_000))


def test_no_rows_and_no_cells() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert list(joined([Digits(nothing), Word(Table([]), nothing), Varint(nothing)], 0)) == []
    assert apart([], 3) == [b"", b"", b""]
