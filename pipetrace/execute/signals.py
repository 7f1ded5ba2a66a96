"""Signals and stopped processes: in words, and kept waiting."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def held_back(number: int) -> Iterator[None]:
    """Keeps a signal waiting until the block has ended; then it does what it would have done.

    Beside the main thread, which alone may say what a signal does, nothing is held back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(number, lambda one, _frame: came.append(one))
    try:
        yield
    finally:
        signal.signal(number, before)
        if came:
            signal.raise_signal(number)
