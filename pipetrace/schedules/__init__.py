"""Every schedule that pipetrace can build, one file a paper, and the registry that lists them."""

from pipetrace.schedules.registry import build, get, names
from pipetrace.schedules.spec import ScheduleSpec

__all__ = ["ScheduleSpec", "build", "get", "names"]
