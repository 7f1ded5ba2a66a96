"""Columns of text: what many slices are called, without a string each.

A name such as `F 3 s4` is a kind, a number and a number. Kept as columns a million of them are cheap, and every writer
puts them into bytes in its own way, a block of rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipetrace.action import BoolArray, IntArray

NOTHING = -1
"""The index of a `Choice` that stands for no text."""


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A whole number not below 0 in each row.

    Args:
        value: Shape (n,); where `present` is False anything.
        present: Which rows have it; None for all.
        before, after: Text around it, only where it is present.
    """

    value: IntArray
    present: BoolArray | None = None
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of some words in each row.

    Args:
        words: What there is to choose from.
        index: Which of them, or `NOTHING`; shape (n,).
    """

    words: Sequence[str]
    index: IntArray


Piece: TypeAlias = str | Number | Choice
Text: TypeAlias = Sequence[Piece]
"""Pieces that follow each other in every row; a `str` is the same in all."""


def where(word: str, present: BoolArray) -> Choice:
    """A word in some rows."""
    return Choice((word,), np.where(present, 0, NOTHING))


def strings(text: Text, rows: int) -> list[str]:
    """A text as one string a row."""
    parts: list[list[str]] = []
    for piece in text:
        if isinstance(piece, str):
            parts.append([piece] * rows)
        elif isinstance(piece, Choice):
            parts.append([piece.words[i] if i != NOTHING else "" for i in piece.index.tolist()])
        else:
            present = [True] * rows if piece.present is None else piece.present.tolist()
            parts.append(
                [
                    f"{piece.before}{value}{piece.after}" if there else ""
                    for value, there in zip(piece.value.tolist(), present, strict=True)
                ]
            )
    return ["".join(row) for row in zip(*parts, strict=True)] if parts else [""] * rows
