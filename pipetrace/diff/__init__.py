"""Two timelines of one schedule → what differs, and why."""

from pipetrace.diff.analysis import Analysis
from pipetrace.diff.fault import Fault, FaultKind
from pipetrace.diff.match import Diff, diff, median_step

__all__ = ["Analysis", "Diff", "Fault", "FaultKind", "diff", "median_step"]
