"""What the registry knows of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipetrace.errors import SizeError
from pipetrace.schedule import Schedule

FLAGS: Mapping[str, str] = {
    "chunks": "-v",
    "group": "--group",
    "pipes": "--pipes",
    "backward": "--backward",
    "memory": "--memory-chunks",
}
"""Options of builders that the command line has a flag for; others are given as --option NAME=VALUE."""


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What `pipetrace list` says of a schedule, and how it is built.

    Args:
        name: As given on the command line.
        build: (ranks, microbatches, **options) → Schedule; raises ScheduleError for sizes it does not take.
        placement: Where the stages go: "loop", "v" or "mirrored".
        limits: What the sizes must fulfil, in words.
        paper: Who described it.
        options: Names of the keyword options that `build` takes. Two have a meaning of their own: "costs" is handed
            the `Costs` that the schedule is for, without being asked; "memory" is a limit of activations in flight on
            a rank, in chunks.
    """

    name: str
    build: Callable[..., Schedule]
    placement: str
    limits: str
    paper: str
    options: tuple[str, ...] = ()


def require(condition: bool, message: str, hint: str) -> None:
    """Raises a SizeError unless `condition` holds; the hint says for which sizes it would."""
    if not condition:
        raise SizeError(message, hint)
