"""The exceptions that pipetrace raises for what a user can cause.

Each carries one line that says what is wrong and where, and a hint that says what to do. The command line prints
both and exits with 1; nothing below it ever ends in a traceback for these.
"""

from __future__ import annotations


class PipetraceError(Exception):
    """Base of the family.

    Args:
        message: What is wrong and where, one line.
        hint: What to do about it, one line; empty where the message says all.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[PipetraceError], tuple[str, str]]:
        # Exception's own pickling would drop the hint; errors cross process borders in `execute`.
        return type(self), (self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class ActionError(PipetraceError):
    """An action's text or fields are wrong."""


class ScheduleError(PipetraceError):
    """A schedule cannot be built, read, or is not valid."""


class SizeError(ScheduleError):
    """A schedule is not for these sizes; the hint says for which it is."""


class DeadlockError(ScheduleError):
    """A schedule's orders wait for each other in a circle, or for something that never comes."""


class CostError(PipetraceError):
    """Costs are missing, negative or cannot be read."""


class TraceError(PipetraceError):
    """A trace cannot be read or written."""


class RunError(PipetraceError):
    """A run failed, or cannot be started."""


class OutputError(PipetraceError):
    """A file or folder cannot be written, or a port cannot be had."""


class ConfigError(PipetraceError):
    """A file of options cannot be read, or holds what is no option."""
