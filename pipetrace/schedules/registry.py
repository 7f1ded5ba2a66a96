"""The list of schedules by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from pipetrace.costs import Costs
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
from pipetrace.schedules.plugins import plugin_names, plugin_of, with_plugins
from pipetrace.schedules.sizes import check_sizes
from pipetrace.schedules.spec import FLAGS, ScheduleSpec
from pipetrace.shown import shown

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
    """The names of pipetrace's own schedules, in the order in which `pipetrace list` shows them."""
    return list(_SPECS)


def listed() -> tuple[list[ScheduleSpec], list[str]]:
    """All schedules, those of installed plug-ins last; and a line for each plug-in that cannot be used."""
    return with_plugins(_SPECS)


def get(name: str) -> ScheduleSpec:
    """The schedule called `name`.

    Raises:
        ScheduleError: There is none, the hint has the nearest names; or it is a plug-in's that cannot be loaded.
    """
    if not isinstance(name, str):
        raise ScheduleError(f"{shown(name)} is no name of a schedule", f"schedules are {', '.join(_SPECS)}")
    if name in _SPECS:
        return _SPECS[name]
    if (plugin := plugin_of(name)) is not None:
        return plugin
    near = difflib.get_close_matches(name[:100].lower().replace("_", "-"), [*_SPECS, *plugin_names()], n=3, cutoff=0.4)
    raise ScheduleError(
        f"unknown schedule {shown(name)}",
        f"did you mean {' or '.join(near)}?" if near else f"schedules are {', '.join(_SPECS)}",
    )


def build(name: str, ranks: int, microbatches: int, **options: object) -> Schedule:
    """Builds and checks a schedule.

    Args:
        name: As in `names()`, or of an installed plug-in.
        ranks: Pipeline ranks p.
        microbatches: Microbatches m of one step.
        options: What the schedule takes beside, e.g. `chunks` of "interleaved"; None stands for its default.

    Raises:
        ScheduleError: Unknown name or option, or sizes that the schedule does not take.
    """
    return build_spec(get(name), ranks, microbatches, options)


def build_spec(
    spec: ScheduleSpec,
    ranks: int,
    microbatches: int,
    options: Mapping[str, object] | None = None,
    costs: Costs | None = None,
) -> Schedule:
    """`build` for a schedule that need not be in the registry.

    Args:
        spec: What is built.
        ranks, microbatches, options: As in `build`.
        costs: What it is for; handed to a builder that looks at costs, of no matter to the others.

    Raises:
        ScheduleError: An unknown option, or sizes that the schedule does not take.
    """
    given = {option: value for option, value in (options or {}).items() if value is not None}
    check_options(spec, given)
    check_sizes(spec, ranks, microbatches, given)
    if "costs" in given and not isinstance(given["costs"], Costs):
        raise ScheduleError(
            f"costs of {spec.name} is {shown(given['costs'])}",
            "a builder is handed the costs of --costs or --costs-file",
        )
    if costs is not None and "costs" in spec.options:
        given["costs"] = costs
    return spec.build(ranks, microbatches, **given).validate()


def check_options(spec: ScheduleSpec, options: Iterable[str]) -> None:
    """Raises a ScheduleError for an option that the schedule does not take; the hint says which do."""
    for option in options:
        if option not in spec.options:
            takers = [other.name for other in _SPECS.values() if option in other.options]
            known = [FLAGS.get(name, f"--option {name}") for name in spec.options if name != "costs"]
            raise ScheduleError(
                f"{spec.name} takes no option {shown(option)}" + (f" ({FLAGS[option]})" if option in FLAGS else ""),
                f"it is for {', '.join(takers)}" if takers else f"its options are {', '.join(known) or 'none'}",
            )
