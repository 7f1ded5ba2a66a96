"""The list of schedules by name."""

from __future__ import annotations

import difflib

from pipetrace.errors import ScheduleError
from pipetrace.schedule import Schedule
from pipetrace.schedules import (
    chimera,
    dualpipe,
    dualpipev,
    gpipe,
    interleaved,
    interleaved_zb,
    looped_bfs,
    moe_1f1b,
    one_f_one_b,
    one_f_one_b_v,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zbv,
)
from pipetrace.schedules.spec import ScheduleSpec

_SPECS: dict[str, ScheduleSpec] = {
    module.SPEC.name: module.SPEC
    for module in (
        gpipe,
        one_f_one_b,
        interleaved,
        looped_bfs,
        one_f_one_b_v,
        chimera,
        zb_h1,
        zb_h2,
        interleaved_zb,
        zbv,
        v_half,
        v_min,
        dualpipe,
        dualpipev,
        moe_1f1b,
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


def build(name: str, ranks: int, microbatches: int, **options: object) -> Schedule:
    """Builds and checks a schedule.

    Args:
        name: As in `names()`.
        ranks: Pipeline ranks p.
        microbatches: Microbatches m of one step.
        options: What the schedule takes beside, e.g. `chunks` of "interleaved"; None stands for its default.

    Raises:
        ScheduleError: Unknown name or option, or sizes that the schedule does not take.
    """
    spec = get(name)
    if ranks < 1:
        raise ScheduleError(f"{name} on {ranks} ranks", "give at least 1 rank (-p)")
    if microbatches < 1:
        raise ScheduleError(f"{name} with {microbatches} microbatches", "give at least 1 microbatch (-m)")
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in spec.options:
            takers = [other.name for other in _SPECS.values() if option in other.options]
            raise ScheduleError(
                f"{name} takes no option {option!r}",
                f"it is for {', '.join(takers)}" if takers else f"its options are {', '.join(spec.options) or 'none'}",
            )
    return spec.build(ranks, microbatches, **given).validate()
