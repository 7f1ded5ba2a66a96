"""Signals and stopped processes, in words."""

from __future__ import annotations

import signal
from pathlib import Path


def signal_name(number: int) -> str:
    """What a signal is called: SIGKILL; SIGRTMIN+6 for one of the many that only have numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        first = getattr(signal, "SIGRTMIN", None)
        return f"signal {number}" if first is None or number < first else f"SIGRTMIN+{number - first}"


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, by SIGSTOP or a debugger; False where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The name before it may hold anything, brackets and blanks too.
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])
