"""The critical paths of two steps, and where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetrace.metrics import Step


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Two critical paths.

    Args:
        ideal, measured: Their steps, in the order of time.
        shared: Actions that lie on both.
        parts_at: The first step of the measured path whose action is not the ideal's next; None where there is none.
        joins_at: The first after it from which on both are the same to the end; None where they stay apart.
    """

    ideal: Sequence[Step]
    measured: Sequence[Step]
    shared: int
    parts_at: Step | None
    joins_at: Step | None


def compare_paths(ideal: Sequence[Step], measured: Sequence[Step]) -> Paths:
    """Lays two critical paths beside each other."""
    one, two = ([step for step in path if not step.transfer] for path in (ideal, measured))
    names = [[str(step.action) for step in path] for path in (one, two)]
    shortest = min(map(len, names))
    head = next((i for i in range(shortest) if names[0][i] != names[1][i]), shortest)
    tail = next((i for i in range(shortest - head) if names[0][-1 - i] != names[1][-1 - i]), shortest - head)
    parts = two[head] if head < len(two) - tail else None
    joins = two[len(two) - tail] if parts is not None and tail else None
    return Paths(ideal, measured, len(set(names[0]) & set(names[1])), parts, joins)


def time_on(path: Sequence[Step]) -> Mapping[str, int]:
    """ns of a path by what it is spent on: "rank 2", "transfers", "host"; they sum to the makespan."""
    sums: defaultdict[str, int] = defaultdict(int)
    for step in path:
        sums["transfers" if step.transfer else f"rank {step.rank}"] += step.duration
        sums["host"] += step.delay
    return dict(sums)
