"""The critical paths of two steps, and where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipetrace.action import Action, Pair
from pipetrace.diff.observe import NOBODY
from pipetrace.metrics import Step
from pipetrace.metrics.tiles import Lookup


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Two critical paths.

    Args:
        ideal, measured: Their steps, in the order of time.
        shared: Actions that lie on both.
        parts_at: The first step of the measured path whose action is not the ideal's next; None where there is none.
        joins_at: The first after it from which on both are the same to the end; None where they stay apart.
        ideal_time, measured_time: ns by what they are spent on: "rank 2", "transfers", "host", "rank 1, not recorded";
            each sums to its makespan.
    """

    ideal: Sequence[Step]
    measured: Sequence[Step]
    shared: int
    parts_at: Step | None
    joins_at: Step | None
    ideal_time: Mapping[str, int]
    measured_time: Mapping[str, int]


def compare_paths(ideal: Sequence[Step], measured: Sequence[Step], unrecorded: Lookup | None = None) -> Paths:
    """Lays two critical paths beside each other.

    Args:
        ideal, measured: Their steps.
        unrecorded: Finds by an action's code the rank that makes what it needs and was not recorded.
    """
    one, two = ([step for step in path if not step.transfer] for path in (ideal, measured))
    names = [[str(step.action) for step in path] for path in (one, two)]
    shortest = min(map(len, names))
    head = next((i for i in range(shortest) if names[0][i] != names[1][i]), shortest)
    tail = next((i for i in range(shortest - head) if names[0][-1 - i] != names[1][-1 - i]), shortest - head)
    parts = two[head] if head < len(two) - tail else None
    joins = two[len(two) - tail] if parts is not None and tail else None
    shared = len(set(names[0]) & set(names[1]))
    return Paths(ideal, measured, shared, parts, joins, _time_on(ideal), _time_on(measured, unrecorded))


def _time_on(path: Sequence[Step], unrecorded: Lookup | None = None) -> Mapping[str, int]:
    """ns of a path by what it is spent on."""
    sums: defaultdict[str, int] = defaultdict(int)
    for step in path:
        sums["transfers" if step.transfer else f"rank {step.rank}"] += step.duration
        awaited = NOBODY
        if unrecorded is not None and step.delay and not step.transfer:
            awaited = int(unrecorded.find(np.array([_code(step.action)]))[0])
        sums["host" if awaited == NOBODY else f"rank {awaited}, not recorded"] += step.delay
    return dict(sums)


def _code(item: Action | Pair) -> int:
    return (item.forward if isinstance(item, Pair) else item).code
