"""Schedules run for real with torch: the only folder that imports it, and only where it runs."""

from pipetrace.execute.config import RunConfig
from pipetrace.execute.repeat import Repeats, repeat
from pipetrace.execute.result import CheckReport, RankCheck, RunResult
from pipetrace.execute.runner import run

__all__ = ["CheckReport", "RankCheck", "Repeats", "RunConfig", "RunResult", "repeat", "run"]
