"""What writers of traces are told: processes, tracks, counters, and slices in blocks of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipetrace.action import IntArray
from pipetrace.metrics import Series
from pipetrace.trace.flows import Ends
from pipetrace.trace.naming import Arg
from pipetrace.trace.text import Text

LANES = ("phase", "compute", "all-to-all", "idle", "send", "recv", "waits")
"""Names of tracks, in the order in which to show them."""
CATEGORIES = ("phase", "compute", "all-to-all", "idle", "send", "recv", "wait", "recorded")
"""Of slices, by lane; the last is that of the events of somebody's recording."""
ARROWS = ("forward", "backward", "counterpart")
"""What arrows are called: the data's way between ranks, and from a tile to the same one of the other timeline."""


@dataclass(frozen=True, slots=True)
class Process:
    """A group of tracks.

    Args:
        pid: Unique, and rising in the order in which to show them.
        name: What it is called.
        label: Its timeline's.
        within: The pid of a group in which to show it, where groups can be nested, and what it is called there.
    """

    pid: int
    name: str
    label: str = ""
    within: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Track:
    """A line of slices, which may lie within each other, but do not cross.

    Args:
        tid: Unique over all processes, and no process's pid.
        pid: Of its process.
        name: What it is called.
    """

    tid: int
    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class CounterTrack:
    """A value over time.

    Args:
        pid: Of its process.
        name, unit: What it is called, and in what it is given.
        series: Its values, whole numbers.
        per: How many of these make one of the unit: 1, or of ns 1,000 (µs) or 1,000,000 (ms).
    """

    pid: int
    name: str
    unit: str
    series: Series
    per: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """A block of n slices, those of one track in the order of time.

    Args:
        track: Of each the index in `Tracks.tracks`; columns of shape (n,).
        lane: Index of its category.
        name, args: What it is called, and what it says when clicked.
        start, end: ns.
        colour: What shares a colour shares this number; 0 for none.
        leaves, arrives: The ends of arrows in the slices. The arrow's number is unique over the trace.
    """

    track: IntArray
    lane: IntArray
    name: Text
    args: Sequence[Arg]
    start: IntArray
    end: IntArray
    colour: IntArray
    leaves: Ends
    arrives: Ends

    def __len__(self) -> int:
        return self.start.size
