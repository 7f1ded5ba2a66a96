"""The list of schedules by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules import gpipe, one_f_one_b, zb_h1


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What `pipetrace list` says of a schedule, and how it is built.

    Args:
        name: As given on the command line.
        build: (ranks, microbatches) → Schedule.
        placement: Where the stages go, in words.
        limits: What the sizes must fulfil, in words.
        paper: Who described it.
        min_ranks: The least p that makes sense, with `why_min_ranks`.
    """

    name: str
    build: Callable[[int, int], Schedule]
    placement: str
    limits: str
    paper: str
    min_ranks: int = 1
    why_min_ranks: str = ""


_SPECS = {
    spec.name: spec
    for spec in (
        ScheduleSpec("gpipe", gpipe.build, "loop", "any p, m", "Huang et al. 2019, arXiv:1811.06965"),
        ScheduleSpec(
            "1f1b", one_f_one_b.build, "loop", "any p, m", "PipeDream-Flush: Narayanan et al. 2021, arXiv:2006.09503"
        ),
        ScheduleSpec(
            "zb-h1",
            zb_h1.build,
            "loop",
            "p >= 2; any m",
            "Zero Bubble: Qi et al. 2023, arXiv:2401.10241",
            min_ranks=2,
            why_min_ranks="on one rank there is no bubble for weight gradients to fill; 1f1b does the same work",
        ),
    )
}


def names() -> list[str]:
    """The names of all schedules, in the order in which `pipetrace list` shows them."""
    return list(_SPECS)


def get(name: str) -> ScheduleSpec:
    """The schedule called `name`.

    Raises:
        ScheduleError: There is none; the hint has the nearest names.
    """
    if name in _SPECS:
        return _SPECS[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), _SPECS, n=3, cutoff=0.4)
    raise ScheduleError(
        f"unknown schedule {name!r}",
        f"did you mean {' or '.join(near)}?" if near else f"schedules are {', '.join(_SPECS)}",
    )


def build(name: str, ranks: int, microbatches: int) -> Schedule:
    """Builds and checks a schedule.

    Args:
        name: As in `names()`.
        ranks: Pipeline ranks p.
        microbatches: Microbatches m of one step.

    Raises:
        ScheduleError: Unknown name, or sizes that the schedule does not take.
    """
    spec = get(name)
    if ranks < 1:
        raise ScheduleError(f"{name} on {ranks} ranks", "give at least 1 rank (-p)")
    if microbatches < 1:
        raise ScheduleError(f"{name} with {microbatches} microbatches", "give at least 1 microbatch (-m)")
    if ranks < spec.min_ranks:
        raise ScheduleError(f"{name} needs at least {spec.min_ranks} ranks, not {ranks}: {spec.why_min_ranks}")
    return spec.build(ranks, microbatches).validate()
