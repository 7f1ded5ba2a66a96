"""What a fault is, and what it is looked for in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from pipetrace.action import NO_ACTION, Kind, code_kind, code_stage
from pipetrace.costs import Costs
from pipetrace.diff.match import Diff
from pipetrace.diff.observe import Observed
from pipetrace.diff.patterns import FloatArray
from pipetrace.diff.replay import Graph, Inputs
from pipetrace.diff.work import Work


class FaultKind(StrEnum):
    """What is at fault."""

    COMPUTE = "compute"
    """Actions of a rank, stage or kind take longer, by a factor."""
    LINK = "link"
    """Transfers take longer, by a time."""
    SEND = "send posted late"
    """Sends are posted later than what they carry is made."""
    RECEIVE = "receive posted late"
    """Receives are posted later than what they bring was sent."""
    GAP = "gap"
    """A rank pauses before its actions though all they need is there."""
    DELAYED = "delayed"
    """One action started late, by a time."""
    LONG = "long"
    """One action took longer, by a time."""
    ORDER = "order"
    """Actions ran in another order."""
    MISSING = "missing"
    """Actions were not measured."""
    EXTRA = "extra"
    """Actions were measured that the schedule does not have."""
    CLOCK = "clock"
    """Ranks' clocks disagree."""


@dataclass(frozen=True, eq=False)
class Fault:
    """Something that differs, and what it costs.

    Args:
        kind: What.
        names: Where: a rank, stage, link or action; several where they would look the same.
        amount: A factor of `COMPUTE`, ns of what is late or long, the number of actions of `ORDER`, `MISSING` and
            `EXTRA`.
        count: Actions or transfers that it concerns.
        total: ns of all of them together, whether the step feels them or not.
        healed: What would have been measured without it.
        in_ideal_order: Whether that is replayed in the schedule's order.
        typical: What the amount is held against, ns: a usual duration, transfer or gap.
        effect: ns of the measured makespan that would not be without it; set once it has been replayed.
    """

    kind: FaultKind
    names: tuple[str, ...]
    amount: float
    count: int
    total: int
    healed: Inputs = field(repr=False)
    in_ideal_order: bool = False
    typical: int = 0
    effect: int = 0


@dataclass(frozen=True, eq=False)
class Case:
    """What faults are looked for in.

    Args:
        of: The diff, its measured timeline on clocks that agree.
        work: Its rows.
        costs: What the reference's halves of pairs cost.
        reference: What would be measured without a fault.
        graph: In which order.
        seen: What was measured.
        posts_ahead: Whether ranks are meant to post receives before what comes before their use has run.
    """

    of: Diff
    work: Work
    costs: Costs
    reference: Inputs
    graph: Graph
    seen: Observed
    posts_ahead: bool = True

    @cached_property
    def floor(self) -> int:
        """ns below which nothing is a fault: a five-hundredth of a usual action."""
        mine = self.seen.known & self.work.in_schedule
        durations = self.seen.inputs.duration[mine]
        return round(0.002 * float(np.median(durations))) if durations.size else 0

    @cached_property
    def forward_share(self) -> FloatArray:
        """What share of each row's reference duration its forward half takes; 1 or 0 where it is no pair; (n,)."""
        work = self.work
        share: FloatArray = (code_kind(work.code) == Kind.F).astype(np.float64)
        paired = work.partner != NO_ACTION
        if paired.any():
            stages = work.schedule.stages
            tables = np.array([(of.F, of.full_backward, of.I) for of in map(self.costs.of, range(stages))])
            forward = tables[code_stage(work.code[paired]), 0].astype(np.float64)
            full = code_kind(work.partner[paired]) == Kind.B
            stage = code_stage(work.partner[paired])
            backward = np.where(full, tables[stage, 1], tables[stage, 2])
            share[paired] = np.where(forward + backward > 0, forward / np.maximum(forward + backward, 1), 0.5)
        return share
