"""One hue a kind, the same in every chart, on paper-white, on black and in the terminal.

The hues are Okabe and Ito's ("Color Universal Design", 2008), which stay apart for people with deuteranopia and
protanopia. Where ranks hold several chunks the shade says which, dark the first and light the last. Every second
microbatch takes another shade, beside chunks a little other, so that neighbours of one kind are told apart without a
border; in parts of MoE layers it tells attention from mlp and dispatch from combine instead. The tests hold every pair
of hues to a least distance as a dichromat sees them, and every label to a contrast of 4.5:1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind, Part, code_kind, code_microbatch, code_part


class Group(IntEnum):
    """What shares a hue and an entry in the legend, in the legend's order."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's own letter
    W = 3
    OTHER = 4
    TRANSFER = 5
    WAIT = 6
    EXPOSED = 7


@dataclass(frozen=True, slots=True)
class Hue:
    """How a group looks.

    Args:
        legend: What it is, in words.
        letter: What stands for it where there is no colour.
        base, alternate: Fill of even and odd microbatches, `#rrggbb`.
        dark, light: Fill of the first and of the last of several chunks.
        ink: Text on base and alternate.
        basic, basic_ink: The same where a terminal has sixteen colours, by name. Nearest matches would not do: those
            of F and W are one.
    """

    legend: str
    letter: str
    base: str
    alternate: str
    dark: str
    light: str
    ink: str
    basic: str
    basic_ink: str = "black"


WHITE, BLACK = "#ffffff", "#000000"

HUES: Mapping[Group, Hue] = {
    Group.F: Hue("F forward", "F", "#0072b2", "#005a8e", "#00639b", "#86bbcd", WHITE, "blue", "bright_white"),
    Group.B: Hue("B full backward", "B", "#d55e00", "#e57a2b", "#d55e00", "#f49565", BLACK, "red", "bright_white"),
    Group.I: Hue("I input gradient", "I", "#e69f00", "#f2b938", "#e69f00", "#f6cd80", BLACK, "yellow"),
    Group.W: Hue("W weight gradient", "W", "#009e73", "#3dba95", "#009e73", "#5fe8b1", BLACK, "green"),
    Group.OTHER: Hue("once a stage", "O", "#f0e442", "#f5ec7e", "#f0e442", "#f5ec7e", BLACK, "white"),
    Group.TRANSFER: Hue("transfer", "t", "#56b4e9", "#86caf0", "#56b4e9", "#86caf0", BLACK, "cyan"),
    Group.EXPOSED: Hue(
        "exposed all-to-all", "!", "#aa11ff", "#aa11ff", "#aa11ff", "#aa11ff", WHITE, "bright_magenta", "black"
    ),
    Group.WAIT: Hue("waits for a receive", "~", "#9c9ca3", "#9c9ca3", "#9c9ca3", "#9c9ca3", BLACK, "bright_black"),
}

MIXED = Hue("several kinds", "█", "#cc79a7", "#cc79a7", "#cc79a7", "#cc79a7", BLACK, "magenta")
"""What is too narrow to be told apart; the eighth of Okabe and Ito's hues, so that it looks like no kind."""

RANK_HUES = ("#c12499", "#c46b21", "#508ceb", "#837449", "#5758ed", "#c66c8a")
"""Of lines that stand for ranks: neither dark nor light, so that they are seen in light and in dark."""

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


CHUNKED = (Group.F, Group.B, Group.I, Group.W)
"""Groups whose shade says the chunk."""

_ODD = 0.16  # of the step from one chunk's shade to the next


@dataclass(frozen=True, slots=True)
class Shade:
    """How one tile looks.

    Args:
        hue: Of its group.
        fill, ink: Of the tile, and of what stands on it.
        letter: What stands for it where there is no colour: small for every second chunk.
    """

    hue: Hue
    fill: str
    ink: str
    letter: str


@cache
def shade(group: Group, chunk: int, chunks: int, odd: bool) -> Shade:
    """The shade of a group's tile.

    Args:
        group: Which.
        chunk: Its chunk of its rank, from 0.
        chunks: How many the ranks hold.
        odd: Whether it takes the alternate shade.
    """
    hue = HUES[group]
    if chunks == 1 or group not in CHUNKED:
        return Shade(hue, hue.alternate if odd else hue.base, hue.ink, hue.letter)
    fill = _mixed(hue.dark, hue.light, (chunk + _ODD * odd) / (chunks - 1 + _ODD))
    ink = max(WHITE, BLACK, key=lambda colour: _contrast(colour, fill))
    return Shade(hue, fill, ink, hue.letter.lower() if chunk % 2 else hue.letter)


def _mixed(one: str, other: str, share: float) -> str:
    values = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in values)


def _contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def groups_of(code: IntArray) -> IntArray:
    """The group of each code; shape (n,)."""
    groups: IntArray = _GROUP_OF_KIND[code_kind(code)]
    return groups


def takes_alternate(code: IntArray) -> BoolArray:
    """Which codes take the alternate shade: those of odd microbatches, of parts the first of a lane; shape (n,)."""
    microbatch = code_microbatch(code)
    odd: BoolArray = (microbatch >= 0) & (microbatch % 2 == 1)
    return np.where(code_part(code) > 0, is_low(code), odd)


PART_LETTERS = np.array(["", "a", "d", "m", "c"], dtype=object)
"""What stands for a part of an MoE layer, by the value of `Part`; nothing for whole stages."""

PARTS_LEGEND = "low: a attn, d dispatch; tall: m mlp, c combine"


def is_low(code: IntArray) -> BoolArray:
    """Which codes are drawn low in a lane: attention beside mlp, dispatch beside combine; shape (n,)."""
    low: BoolArray = np.isin(code_part(code), (Part.ATTN, Part.DISPATCH))
    return low
