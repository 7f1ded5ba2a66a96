"""Schedules of other installed packages: the entry points of the group "pipetrace.schedules"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pipetrace.errors import ScheduleError
from pipetrace.schedules.own import error_text, guarded, quiet, spec_of, text_of
from pipetrace.schedules.spec import ScheduleSpec
from pipetrace.shown import printable, shown

GROUP = "pipetrace.schedules"


def plugin_names() -> list[str]:
    """The names of all plug-ins; none of them is loaded."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def plugin_of(name: str) -> ScheduleSpec | None:
    """The plug-in of that name; None where there is none.

    Raises:
        ScheduleError: It cannot be loaded.
    """
    points = entry_points(group=GROUP, name=name)
    return _load(next(iter(points))) if points else None


def with_plugins(specs: Mapping[str, ScheduleSpec]) -> tuple[list[ScheduleSpec], list[str]]:
    """`specs` and the plug-ins; and a line for each plug-in that cannot be used, since one must not spoil the list."""
    found, faults = dict(specs), []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in found:
            faults.append(f"{_owner(point)}: there is another schedule {point.name!r}, which is taken")
            continue
        try:
            found[point.name] = _load(point)
        except ScheduleError as error:
            faults.append(error.message)
    return list(found.values()), faults


def _load(point: EntryPoint) -> ScheduleSpec:
    try:
        with quiet():
            loaded = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - it is not our code, and may raise anything
        raise ScheduleError(f"{_owner(point)} cannot be loaded: {error_text(error)}", f"it is {point.value}") from None
    if isinstance(loaded, ScheduleSpec):
        return _checked(loaded, point)
    if not callable(loaded):
        raise ScheduleError(f"{_owner(point)} is no builder and no ScheduleSpec", f"it is {point.value}")
    return spec_of(point.name, loaded, _owner(point))


def _checked(spec: ScheduleSpec, point: EntryPoint) -> ScheduleSpec:
    """A specification whose fields are what they should be, since everybody's list shows them."""
    given: Mapping[str, Any] = {
        name: getattr(spec, name) for name in ("placement", "limits", "paper", "options", "build")
    }
    options = given["options"]
    wrong = [name for name in ("placement", "limits", "paper") if not isinstance(given[name], str)]
    if not isinstance(options, tuple | list) or not all(isinstance(o, str) and o.isidentifier() for o in options):
        wrong.append("options")
    if not callable(given["build"]):
        wrong.append("build")
    if wrong:
        raise ScheduleError(
            f"{_owner(point)}: {wrong[0]} of its ScheduleSpec is {shown(getattr(spec, wrong[0]))}",
            f"it is {point.value}; see pipetrace.schedules.ScheduleSpec",
        )
    return replace(
        spec,
        name=printable(point.name),
        build=guarded(point.name, spec.build, _owner(point)),
        placement=text_of(spec.placement),
        limits=text_of(spec.limits),
        paper=text_of(spec.paper),
        options=tuple(options),
    )


def _owner(point: EntryPoint) -> str:
    return f"plug-in {point.name!r}" + (f" of {point.dist.name} {point.dist.version}" if point.dist else "")
