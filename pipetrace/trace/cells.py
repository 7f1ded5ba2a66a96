"""Columns into bytes: many rows of a text or binary format at once.

A writer's hot path. A row is put together from cells (a literal, a number's digits, a word of a table, a varint), each
of which fills its columns of a matrix of bytes for a block of rows at a time; what rows do not use of their width is
then cut out. That takes some ns a byte, where a Python string a slice takes µs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipetrace.action import BoolArray, IntArray

Bytes: TypeAlias = npt.NDArray[np.uint8]
_BLOCK = 1 << 20  # bytes of a block of rows; what fits the processor's cache
_POWERS = np.array([10**i for i in range(19)], dtype=np.int64)
_SEVENS = np.array([1 << 7 * i for i in range(10)], dtype=np.uint64)


class Cell(ABC):
    """A column of n byte strings.

    Attributes:
        width: Most bytes of any.
        length: Bytes of each, shape (n,); an int where all have as many.
    """

    width: int
    length: IntArray | int
    right = False  # whether rows stand at the right end of the cell's columns

    @abstractmethod
    def put(self, into: Bytes, rows: slice) -> None:
        """Writes some rows into a matrix of shape (rows, width)."""


class Literal(Cell):
    """The same bytes in every row, or in those that are `present`."""

    def __init__(self, data: bytes, present: BoolArray | None = None) -> None:
        self._data = np.frombuffer(data, dtype=np.uint8)
        self.width = len(data)
        self.length = self.width if present is None else present * self.width

    def put(self, into: Bytes, rows: slice) -> None:  # noqa: ARG002 - the same in all
        into[:] = self._data


class Digits(Cell):
    """Whole numbers not below 0 in decimal, those that are `present`."""

    right = True

    def __init__(self, value: IntArray, present: BoolArray | None = None) -> None:
        value = value if present is None else np.where(present, value, 0)
        most = int(value.max(initial=0))
        self.width = len(str(most))
        # Halves the time of dividing.
        self._value = value.astype(np.uint32) if most < 1 << 32 else value
        digits = np.maximum(np.searchsorted(_POWERS, value, side="right"), 1)
        self.length = digits if present is None else digits * present

    def put(self, into: Bytes, rows: slice) -> None:
        left = self._value[rows]
        for column in range(self.width - 1, 0, -1):
            rest = left // 10
            into[:, column] = left - rest * 10
            left = rest
        into[:, 0] = left
        into += ord("0")


class Table:
    """Words to choose from."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self.length = np.array([*map(len, words), 0], dtype=np.int64)
        # `NOTHING` takes the last row, which is empty.
        self.bytes = np.zeros((self.length.size, int(self.length.max())), dtype=np.uint8)
        for row, word in enumerate(words):
            self.bytes[row, : len(word)] = np.frombuffer(word, dtype=np.uint8)


class Word(Cell):
    """A word of a table in each row; none where the index is `NOTHING`."""

    def __init__(self, table: Table, index: IntArray) -> None:
        self._table, self._index = table.bytes, index
        self.width = self._table.shape[1]
        self.length = table.length[index]

    def put(self, into: Bytes, rows: slice) -> None:
        into[:] = self._table[self._index[rows]]


class Varint(Cell):
    """Protobuf's variable-length integers: seven bits a byte, the lowest first; below 0 as 64 bits."""

    def __init__(self, value: IntArray, present: BoolArray | None = None) -> None:
        unsigned = value.astype(np.uint64)
        most = int(unsigned.max(initial=0))
        self._value = unsigned.astype(np.uint32) if most < 1 << 32 else unsigned
        size = np.maximum(np.searchsorted(_SEVENS, unsigned, side="right"), 1)
        self.width = int(size.max(initial=1))
        self.length = size if present is None else size * present
        self._last = size - 1

    def put(self, into: Bytes, rows: slice) -> None:
        value, last = self._value[rows], self._last[rows]
        for column in range(self.width):
            into[:, column] = (value >> 7 * column & 127) | ((last > column).astype(np.uint8) << 7)


class Fixed64(Cell):
    """Integers as eight bytes, the lowest first; those that are `present`."""

    width = 8

    def __init__(self, value: IntArray, present: BoolArray | None = None) -> None:
        self._value = value
        self.length = 8 if present is None else present * 8

    def put(self, into: Bytes, rows: slice) -> None:
        into[:] = np.ascontiguousarray(self._value[rows], dtype="<i8").view(np.uint8).reshape(-1, 8)


def only(cells: Sequence[Cell], present: BoolArray | None) -> list[Cell]:
    """Cells that are empty where they are not present; None for all rows."""
    if present is not None:
        for cell in cells:
            cell.length = cell.length * present
    return list(cells)


def total(cells: Sequence[Cell], rows: int) -> IntArray:
    """Bytes of each row of cells that follow each other; shape (rows,)."""
    lengths = np.zeros(rows, dtype=np.int64)
    for cell in cells:
        lengths += cell.length
    return lengths


def joined(cells: Sequence[Cell], rows: int) -> Iterator[bytes]:
    """The rows one after the other, each its cells one after the other, some rows at a time."""
    cells = [cell for cell in cells if cell.width]
    width = sum(cell.width for cell in cells)
    at_once = max(1, _BLOCK // max(width, 1))
    matrix = np.empty((min(at_once, rows), width), dtype=np.uint8)
    used = np.empty(matrix.shape, dtype=np.bool_)
    for first in range(0, rows, at_once):
        some = slice(first, min(first + at_once, rows))
        block, kept = matrix[: some.stop - first], used[: some.stop - first]
        column = 0
        for cell in cells:
            columns = slice(column, column + cell.width)
            cell.put(block[:, columns], some)
            if isinstance(cell.length, int):
                kept[:, columns] = True
            elif cell.right:
                np.greater_equal(np.arange(cell.width), cell.width - cell.length[some, None], out=kept[:, columns])
            else:
                np.less(np.arange(cell.width), cell.length[some, None], out=kept[:, columns])
            column += cell.width
        yield block[kept].tobytes()


def apart(cells: Sequence[Cell], rows: int) -> list[bytes]:
    """The rows as byte strings of their own."""
    whole = b"".join(joined(cells, rows))
    ends = np.cumsum(total(cells, rows)).tolist()
    return [whole[start:end] for start, end in zip([0, *ends], ends, strict=False)]
