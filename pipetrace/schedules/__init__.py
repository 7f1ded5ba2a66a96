"""Every schedule that pipetrace can build, one file a paper, and the registry that lists them."""

from pipetrace.schedules.registry import build, build_spec, check_options, get, listed, names
from pipetrace.schedules.spec import ScheduleSpec

__all__ = ["ScheduleSpec", "build", "build_spec", "check_options", "get", "listed", "names"]
