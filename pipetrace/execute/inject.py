"""Faults that a run is given on purpose, to see what they do to a schedule and whether a diff finds them.

::

    rank2:compute*1.5     all compute of rank 2 takes half as long again
    rank0:gap+2ms         rank 0 pauses before each compute, outside of any label, as a slow host does
    link1-2:+5ms          what rank 1 sends to rank 2 arrives 5 ms later
    no-tags               transfers of a pair of ranks are matched in the order of posting alone
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipetrace.errors import CostError, RunError
from pipetrace.schedule import Schedule
from pipetrace.shown import shown
from pipetrace.times import parse_time

NO_TAGS = "no-tags"
MOST_STRETCH = 1000.0

_RANK = r"(0|[1-9][0-9]{0,5})"
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_UNIT = r"(ns|us|ms|s)"
_COMPUTE = re.compile(rf"rank{_RANK}:compute\*{_NUMBER}")
_GAP = re.compile(rf"rank{_RANK}:gap\+{_NUMBER}{_UNIT}")
_LINK = re.compile(rf"link{_RANK}-{_RANK}:\+{_NUMBER}{_UNIT}")
_HINT = "write rank2:compute*1.5, rank0:gap+2ms, link1-2:+5ms or no-tags"


@dataclass(frozen=True, slots=True)
class Injections:
    """All faults of a run.

    Args:
        stretch: By how much the compute of single ranks takes longer, 1 or more.
        gap: ns for which single ranks pause before each compute.
        delay: ns by which what travels from one rank to another comes later, by (sender, receiver).
        tags: Whether transfers carry tags.
        texts: How people wrote them.
    """

    stretch: Mapping[int, float] = field(default_factory=dict)
    gap: Mapping[int, int] = field(default_factory=dict)
    delay: Mapping[tuple[int, int], int] = field(default_factory=dict)
    tags: bool = True
    texts: tuple[str, ...] = ()

    def on(self, rank: int) -> RankFaults:
        """What happens to one rank's compute."""
        return RankFaults(self.stretch.get(rank, 1.0), self.gap.get(rank, 0))

    def into(self, rank: int) -> dict[int, int]:
        """ns by which what a rank receives comes later, by sender."""
        return {sender: delay for (sender, receiver), delay in self.delay.items() if receiver == rank}

    @property
    def longest(self) -> int:
        """ns for which they may keep a rank from going on, a stretched action apart."""
        return max(self.gap.values(), default=0) + max(self.delay.values(), default=0)

    @property
    def most_stretch(self) -> float:
        """The factor of the slowest rank."""
        return max(self.stretch.values(), default=1.0)

    def check(self, schedule: Schedule) -> None:
        """Refuses faults that a schedule cannot show.

        Raises:
            RunError: A rank is not there, or nothing travels on a link.
            ScheduleError: The schedule is not valid.
        """
        for rank in (*self.stretch, *self.gap, *(rank for link in self.delay for rank in link)):
            if rank >= schedule.ranks:
                raise RunError(
                    f"--inject names rank {rank}, but there are {schedule.ranks} ranks, from 0",
                    f"give a rank up to {schedule.ranks - 1}",
                )
        transfers = schedule.transfers
        used = set(zip(transfers.sender.tolist(), transfers.receiver.tolist(), strict=True))
        for sender, receiver in self.delay:
            if (sender, receiver) not in used:
                raise RunError(
                    f"--inject link{sender}-{receiver}: {schedule.name} sends nothing from rank {sender} to {receiver}",
                    "links that are used: " + " ".join(f"{one}-{other}" for one, other in sorted(used)[:16])
                    if used
                    else "nothing is sent at all",
                )


@dataclass(frozen=True, slots=True)
class RankFaults:
    """What happens to one rank's compute.

    Args:
        stretch: By how much it takes longer, 1 or more.
        gap: ns of pause before each, outside of its label.
    """

    stretch: float = 1.0
    gap: int = 0


NO_FAULTS = RankFaults()


def parse_injections(texts: Sequence[str]) -> Injections:
    """Reads faults, each written as at the top of this module.

    Raises:
        RunError: One cannot be read, is out of range, or stands twice.
    """
    stretch: dict[int, float] = {}
    gap: dict[int, int] = {}
    delay: dict[tuple[int, int], int] = {}
    seen: set[object] = set()
    for text in texts:
        target: object
        if text == NO_TAGS:
            target = NO_TAGS
        elif match := _COMPUTE.fullmatch(text):
            target = ("compute", int(match[1]))
            factor = float(match[2])
            if not 1 <= factor <= MOST_STRETCH:
                raise RunError(
                    f"--inject {shown(text)}: a factor of {match[2]}",
                    f"give one between 1 and {MOST_STRETCH:g}: compute can be made slower, not faster",
                )
            stretch[int(match[1])] = factor
        elif match := _GAP.fullmatch(text):
            target = ("gap", int(match[1]))
            gap[int(match[1])] = _time(text, match[2], match[3])
        elif match := _LINK.fullmatch(text):
            link = int(match[1]), int(match[2])
            target = link
            if link[0] == link[1]:
                raise RunError(f"--inject {shown(text)}: a rank has no link to itself", _HINT)
            delay[link] = _time(text, match[3], match[4])
        else:
            raise RunError(f"cannot read the fault {shown(text)}", _HINT)
        if target in seen:
            raise RunError(f"--inject {shown(text)}: what it changes is given twice", "give each once")
        seen.add(target)
    return Injections(stretch, gap, delay, NO_TAGS not in texts, tuple(texts))


def _time(text: str, number: str, unit: str) -> int:
    try:
        return parse_time(number, unit)
    except CostError as error:
        raise RunError(f"--inject {shown(text)}: {error.message}", error.hint) from None
