"""Why each action ended later than in the other step, one link of the chain at a time.

Δend = Δduration + Δstart, and Δstart = the slip of the predecessor that bound it in the measured step + Δtransfer + gap
- the slack that the other step had on that edge. It holds to the nanosecond for every action.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipetrace.action import IntArray
from pipetrace.diff.observe import Observed
from pipetrace.diff.replay import NEVER, Graph, Inputs, arrivals
from pipetrace.diff.work import Work

NO_PREDECESSOR = -1


@dataclass(frozen=True, eq=False)
class Slips:
    """The slip of every row that both steps have, and its parts, in ns; columns of shape (n,), 0 for other rows.

    slip = growth + predecessor_slip + transfer + gap - slack.

    Args:
        row: The rows that both have; shape (matched,).
        slip: On the end.
        growth: measured - other duration.
        predecessor: The row that bound it in the measured step: what its rank ran before, or what made the last thing
            that it needed; `NO_PREDECESSOR` at the step's start.
        travels: Transfer from that row, -1 where the row is the one before on its rank.
        predecessor_slip: Of that row.
        transfer: By how much longer what that row made was under way, its posting included.
        gap: What passed since everything was there: the host's share, or work that the other step does not have.
            Below 0 only where clocks differ.
        slack: By how much later than that predecessor allowed the row started in the other step; below 0 where the
            two came in another order.
    """

    row: IntArray
    slip: IntArray
    growth: IntArray
    predecessor: IntArray
    travels: IntArray
    predecessor_slip: IntArray
    transfer: IntArray
    gap: IntArray
    slack: IntArray

    def trail(self, row: int) -> list[int]:
        """The rows that bound each other, from the step's start to `row`."""
        rows: list[int] = []
        seen: set[int] = set()
        while row != NO_PREDECESSOR and row not in seen:
            seen.add(row)
            rows.append(row)
            row = int(self.predecessor[row])
        return rows[::-1]

    def because(self, work: Work, row: int) -> Mapping[tuple[str, int | tuple[int, int]], int]:
        """What adds up to a row's slip along its trail, in ns.

        Returns:
            By ("compute", rank), ("transfer", (from, to)), ("gap", rank), and ("slack", -1), which is what the other
            step had to spare, below 0. They sum to the slip.
        """
        sums: defaultdict[tuple[str, int | tuple[int, int]], int] = defaultdict(int)
        for at in self.trail(row):
            rank = int(work.rank[at])
            sums["compute", rank] += int(self.growth[at])
            sums["gap", rank] += int(self.gap[at])
            if self.travels[at] >= 0:
                t = int(self.travels[at])
                sums["transfer", (int(work.sender[t]), int(work.receiver[t]))] += int(self.transfer[at])
            sums["slack", -1] -= int(self.slack[at])
        return {key: value for key, value in sums.items() if value}


def slips(work: Work, base: Inputs, base_graph: Graph, measured: Observed) -> Slips:
    """The slip of every row that both steps have.

    Args:
        work: Their rows.
        base: What replays the other step.
        base_graph: In which order.
        measured: The measured one.
    """
    ((base_start, base_end),) = base_graph.play([base])
    common = measured.known & base.present
    n, k = len(work), work.producer.size
    previous = measured.graph.previous
    usable = np.append(common, True)
    while not usable[previous].all():
        previous = np.where(usable[previous], previous, np.append(previous, n)[previous])
    # On another lane of the rank something may have ended later.
    ends = np.append(np.where(common, measured.end, NEVER), 0)
    for column in measured.graph.also:
        previous = np.where(ends[column] > ends[previous], column, previous)
    first = previous == n
    free = np.append(measured.end, 0)[previous]

    both = common[work.producer] & common[work.consumer]
    there = np.append(np.where(both, measured.there, NEVER), NEVER)
    needs = measured.graph.needs
    latest = np.full(n, k, dtype=np.int64)
    for column in needs:
        latest = np.where(there[column] > there[latest], column, latest)
    bound = (there[latest] > free) & (latest < k)
    travels = np.where(bound, latest, -1)
    at = np.minimum(travels, k - 1) if k else travels
    producer = work.producer[at] if k else previous
    predecessor = np.where(bound, producer, np.where(first, NO_PREDECESSOR, previous))

    def left(end: IntArray) -> IntArray:
        """When each row's predecessor ended."""
        return np.where(predecessor == NO_PREDECESSOR, 0, np.append(end, 0)[predecessor])

    base_there = arrivals(base, base_graph, base_start, base_end)
    travel = np.where(bound, there[latest] - left(measured.end), 0)
    base_travel = np.where(bound, np.append(base_there, 0)[latest] - left(base_end), 0)
    columns = {
        "slip": measured.end - base_end,
        "growth": (measured.end - measured.start) - (base_end - base_start),
        "predecessor_slip": left(measured.end) - left(base_end),
        "transfer": travel - base_travel,
        "gap": measured.start - left(measured.end) - travel,
        "slack": base_start - left(base_end) - base_travel,
    }
    return Slips(
        np.flatnonzero(common),
        predecessor=np.where(common, predecessor, NO_PREDECESSOR),
        travels=np.where(common, travels, -1),
        **{name: np.where(common, column, 0) for name, column in columns.items()},
    )
