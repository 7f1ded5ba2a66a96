"""No rank outlives the process that watches over it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def end_with_parent(parent: int) -> None:
    """Ends the calling process when its parent ends. To be called right after a fork.

    Args:
        parent: The parent's process id, taken before the fork: it may already be gone.
    """
    if sys.platform == "linux":
        # By the kernel, so that it works even while the interpreter is stuck in C code.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
