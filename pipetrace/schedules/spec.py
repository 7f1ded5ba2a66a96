"""What the registry knows of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What `pipetrace list` says of a schedule, and how it is built.

    Args:
        name: As given on the command line.
        build: (ranks, microbatches, **options) → Schedule; raises ScheduleError for sizes it does not take.
        placement: Where the stages go: "loop", "v" or "mirrored".
        limits: What the sizes must fulfil, in words.
        paper: Who described it.
        options: Names of the keyword options that `build` takes.
    """

    name: str
    build: Callable[..., Schedule]
    placement: str
    limits: str
    paper: str
    options: tuple[str, ...] = ()


def require(condition: bool, message: str, hint: str) -> None:
    """Raises a ScheduleError unless `condition` holds."""
    if not condition:
        raise ScheduleError(message, hint)
