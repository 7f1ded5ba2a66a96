"""Pauses that end when they should."""

from __future__ import annotations

import sys
import time

_SWITCH_S = 1e-4

SPIN_NS = 400_000
"""ns before its end at which a pause wakes up and spins: the system wakes a sleeper up to this late."""


def pause(ns: int) -> None:
    """Returns `ns` from now, as `sleep_until` does."""
    sleep_until(time.perf_counter_ns() + ns)


def sleep_until(end: int) -> None:
    """Returns at `end` on the `time.perf_counter_ns` clock, less than a microsecond late at the median."""
    pause = end - SPIN_NS - time.perf_counter_ns()
    if pause > 0:
        time.sleep(pause * 1e-9)
    while time.perf_counter_ns() < end:
        pass


def take_turns() -> None:
    """Lets a thread that spins or computes in Python keep others from going on for no longer than a tenth of a ms.

    Python's own 5 ms are longer than many an action.
    """
    sys.setswitchinterval(_SWITCH_S)
