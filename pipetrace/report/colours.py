"""One hue a kind, the same in every chart, on paper-white, on black and in the terminal.

The hues are Okabe and Ito's ("Color Universal Design", 2008), which stay apart for people with deuteranopia and
protanopia. Every second microbatch takes the alternate shade, so that neighbours of one kind are told apart without
a border. The tests hold every pair of hues to a least distance as a dichromat sees them, and every label to a
contrast of 4.5:1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind, code_kind, code_microbatch


class Group(IntEnum):
    """What shares a hue and an entry in the legend, in the legend's order."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's own letter
    W = 3
    OTHER = 4
    TRANSFER = 5
    WAIT = 6


@dataclass(frozen=True, slots=True)
class Hue:
    """How a group looks.

    Args:
        legend: What it is, in words.
        letter: What stands for it where there is no colour.
        base, alternate: Fill of even and odd microbatches, `#rrggbb`.
        ink: Text on either of them.
        basic, basic_ink: The same where a terminal has sixteen colours, by name. Nearest matches would not do: those
            of F and W are one.
    """

    legend: str
    letter: str
    base: str
    alternate: str
    ink: str
    basic: str
    basic_ink: str = "black"


WHITE, BLACK = "#ffffff", "#111111"

HUES: Mapping[Group, Hue] = {
    Group.F: Hue("F forward", "F", "#0072b2", "#005a8e", WHITE, "blue", "bright_white"),
    Group.B: Hue("B full backward", "B", "#d55e00", "#e57a2b", BLACK, "red", "bright_white"),
    Group.I: Hue("I input gradient", "I", "#e69f00", "#f2b938", BLACK, "yellow"),
    Group.W: Hue("W weight gradient", "W", "#009e73", "#3dba95", BLACK, "green"),
    Group.OTHER: Hue("once a stage", "O", "#f0e442", "#f5ec7e", BLACK, "white"),
    Group.TRANSFER: Hue("transfer", "t", "#56b4e9", "#86caf0", BLACK, "cyan"),
    Group.WAIT: Hue("waits for a receive", "~", "#9c9ca3", "#9c9ca3", BLACK, "bright_black"),
}

MIXED = Hue("several kinds", "█", "#cc79a7", "#cc79a7", BLACK, "magenta")
"""What is too narrow to be told apart; the eighth of Okabe and Ito's hues, so that it looks like no kind."""

_GROUP_OF_KIND = np.full(32, Group.OTHER, dtype=np.int64)
for _kind, _group in (
    (Kind.F, Group.F),
    (Kind.B, Group.B),
    (Kind.I, Group.I),
    (Kind.W, Group.W),
    (Kind.SEND_F, Group.TRANSFER),
    (Kind.RECV_F, Group.TRANSFER),
    (Kind.SEND_B, Group.TRANSFER),
    (Kind.RECV_B, Group.TRANSFER),
):
    _GROUP_OF_KIND[_kind] = _group


def groups_of(code: IntArray) -> IntArray:
    """The group of each code; shape (n,)."""
    groups: IntArray = _GROUP_OF_KIND[code_kind(code)]
    return groups


def takes_alternate(code: IntArray) -> BoolArray:
    """Which codes take the alternate shade: those of odd microbatches; shape (n,)."""
    microbatch = code_microbatch(code)
    odd: BoolArray = (microbatch >= 0) & (microbatch % 2 == 1)
    return odd
