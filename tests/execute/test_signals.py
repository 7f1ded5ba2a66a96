from __future__ import annotations

import os
import signal
import time

from pipetrace.execute.signals import is_stopped, signal_name


def test_every_signal_has_a_name() -> None:
    assert signal_name(9) == "SIGKILL"
    assert signal_name(signal.SIGRTMIN + 6) == "SIGRTMIN+6"
    assert signal_name(32) == "signal 32"  # the C library keeps it for itself
    assert all(signal_name(number) for number in range(1, 65))


def test_a_stopped_process_is_told_from_others() -> None:
    assert not is_stopped(os.getpid())
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED)
    assert is_stopped(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not is_stopped(child)
