"""Two timelines of one schedule → what differs, and why."""

from pipetrace.diff.match import Diff, diff, median_step

__all__ = ["Diff", "diff", "median_step"]
