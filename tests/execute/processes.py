"""Which processes there are."""

from __future__ import annotations

import os
import time
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """All processes below one, by /proc; zombies do not count."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.add(child)
            todo.append(child)
    return found


def running(pids: set[int]) -> set[int]:
    """Those of `pids` that have not ended."""
    alive = set()
    for pid in pids:
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            )
        except OSError:
            continue
        if state != "Z":
            alive.add(pid)
    return alive


def end_within(pids: set[int], seconds: float) -> bool:
    """Whether all of `pids` end in time."""
    limit = time.monotonic() + seconds
    while running(pids):
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def own_descendants() -> set[int]:
    """All processes below this one."""
    return descendants(os.getpid())
