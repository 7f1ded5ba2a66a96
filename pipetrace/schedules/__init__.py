"""Every schedule that pipetrace can build, one file a paper, and the registry that lists them."""

from pipetrace.schedules.registry import ScheduleSpec, build, get, names

__all__ = ["ScheduleSpec", "build", "get", "names"]
