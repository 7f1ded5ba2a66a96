"""Protobuf's wire format, as far as a writer of traces needs it: single messages, and columns of them.

https://protobuf.dev/programming-guides/encoding: a field is its number and wire type as a varint, then a varint, eight
bytes, or a length and as many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.cells import Cell, Fixed64, Literal, Varint, total

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_WORD = (1 << 64) - 1


def varint(value: int) -> bytes:
    """An integer of 64 bits, seven bits a byte."""
    value &= _WORD
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer, bool or enum field."""
    return varint(field << 3 | _VARINT) + varint(value)


def data(field: int, value: bytes | str) -> bytes:
    """A field of bytes, of text, or a message; lone surrogates of text are replaced, as UTF-8 has none."""
    if isinstance(value, str):
        value = utf8(value)
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def utf8(text: str) -> bytes:
    """Text as UTF-8, lone surrogates as U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def numbers(field: int, value: IntArray, present: BoolArray | None = None) -> list[Cell]:
    """An integer field in each row, or where it is present."""
    return [Literal(varint(field << 3 | _VARINT), present), Varint(value, present)]


def fixed64s(field: int, value: IntArray, present: BoolArray) -> list[Cell]:
    """A field of eight bytes in the rows where it is present."""
    return [Literal(varint(field << 3 | _FIXED64), present), Fixed64(value, present)]


def doubles(field: int, value: npt.NDArray[np.float64]) -> list[Cell]:
    """A floating-point field in each row."""
    return [Literal(varint(field << 3 | _FIXED64)), Fixed64(value.view(np.int64))]


def messages(field: int, content: Sequence[Cell], rows: int, present: BoolArray | None = None) -> list[Cell]:
    """A message or text in each row, or where it is present; elsewhere its content must be empty."""
    length: IntArray = np.asarray(total(content, rows))
    return [Literal(varint(field << 3 | _BYTES), present), Varint(length, present), *content]
