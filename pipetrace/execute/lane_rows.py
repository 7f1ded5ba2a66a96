"""What each row of a rank waits for on its own rank, where there is a lane for compute and one for all-to-alls.

A row starts when its lane is free and what it takes is there. Behind a fence neither lane goes on before both have come
to it: the row at the fence waits for the other lane and *opens* the fence, for which the other lane waits. A pair whose
halves both begin there *gathers*: it opens the fence only when the inputs of both have arrived. That is what
`pipetrace.lanes` simulates; here it is spelled out for whatever runs it, threads or a device's streams.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from pipetrace.action import ALL_TO_ALL_PARTS
from pipetrace.execute.program import Op, Program, Transfer
from pipetrace.lanes import fenced_pairs
from pipetrace.schedule import Schedule

NO_FENCE = NO_OTHER = -1


@dataclass(frozen=True, slots=True, eq=False)
class LaneRow:
    """A row of a rank's list.

    Args:
        op: What is run.
        travels: Whether it stands on the all-to-all lane.
        receives: What must have arrived before.
        other: The last row of the other lane that must have ended before, or `NO_OTHER`.
        fence: The last fence at or before it, a row, or `NO_FENCE`.
        gathers: Whether it opens the fence only when what it waits for has arrived.
    """

    op: Op
    travels: bool
    receives: tuple[Transfer, ...]
    other: int
    fence: int
    gathers: bool

    @property
    def opens(self) -> bool:
        """Whether it stands at a fence, for which the other lane waits."""
        return self.fence == self.op.row


def lane_rows(schedule: Schedule, program: Program) -> list[LaneRow]:
    """The rows of a rank in list order; all on the compute lane where the schedule is of whole stages."""
    of_lane: tuple[list[int], list[int]] = ([], [])  # row numbers
    gathers, fences = set(fenced_pairs(schedule).tolist()), schedule.fences.tolist()
    by_row = {op.row: op for op in program.ops}
    rows = []
    fence = NO_FENCE
    for op in program.ops:
        travels = op.halves[0].action.part in ALL_TO_ALL_PARTS
        needs, receives = set(op.after), list(op.receives)
        if op.row in gathers:
            beside = by_row[op.row + 1]
            needs |= set(beside.after)
            receives += beside.receives
        theirs = of_lane[not travels]
        if fences[op.row]:
            fence = op.row
            needs |= set(theirs[-1:])
        others = [theirs[at] for n in needs if (at := bisect_left(theirs, n)) < len(theirs) and theirs[at] == n]
        other = max(others, default=NO_OTHER)
        rows.append(LaneRow(op, travels, tuple(receives), other, fence, op.row in gathers))
        of_lane[travels].append(op.row)
    return rows
