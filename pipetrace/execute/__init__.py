"""Schedules run for real with torch: the only folder that imports it, and only where it runs."""

from pipetrace.execute.config import RunConfig
from pipetrace.execute.result import CheckReport, RankCheck, RunResult
from pipetrace.execute.runner import run

__all__ = ["CheckReport", "RankCheck", "RunConfig", "RunResult", "run"]
