"""Columns of text."""

from __future__ import annotations

import numpy as np

from pipetrace.trace.text import NOTHING, Choice, Number, Text, strings, where


def test_rows_are_their_pieces_one_after_the_other() -> None:
    present = np.array([True, False, True])
    text: Text = [
        Choice(("F", "B"), np.array([1, NOTHING, 0])),
        Number(np.array([3, -1, 0]), present, before=" ", after="!"),
        where("?", ~present),
        ".",
    ]
    assert strings(text, 3) == ["B 3!.", "?.", "F 0!."]
    assert strings([], 2) == ["", ""]
