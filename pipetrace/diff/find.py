"""All faults of a measured step, each with what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipetrace.diff.fault import Case, Fault, FaultKind
from pipetrace.diff.find_compute import compute_faults
from pipetrace.diff.find_order import order_faults
from pipetrace.diff.find_waits import gap_faults, link_faults, post_faults
from pipetrace.diff.noise import Noise

_FELT = 2.0  # times the noise
_LEAST_SHARE = 0.001  # of the step


@dataclass(frozen=True, eq=False)
class Found:
    """The faults of a step: what lengthens it, what shortens it, what it does not feel; each the largest first.

    Where the step got shorter than the one before, what shortens it comes before what lengthens it.

    Args:
        faults: See above.
        noise: Of the makespan.
        makespan: ns of the measured step, on clocks that agree.
        whole: Whether all ranks were recorded. If not, nobody knows what the step would take without a fault, as others
            wait for ranks of which nothing is known: the faults are the largest first by their own time.
    """

    faults: tuple[Fault, ...]
    noise: Noise
    makespan: int
    whole: bool = True

    def is_felt(self, fault: Fault) -> bool:
        """Whether a fault changes the makespan by more than noise does; none is known to where ranks are missing."""
        return self.whole and abs(fault.effect) > max(_FELT * self.noise.makespan, _LEAST_SHARE * self.makespan)


def find_faults(
    case: Case, noise: Noise, first: Sequence[Fault] = (), *, got_shorter: bool = False, whole: bool = True
) -> Found:
    """What is at fault in a measured step.

    Args:
        case: The step.
        noise: Of its makespan.
        first: Faults that were found before, their effect known.
        got_shorter: Whether it is to be said why the step is shorter, not why it is longer.
        whole: Whether all ranks were recorded.
    """
    found = [*compute_faults(case), *link_faults(case), *post_faults(case), *gap_faults(case), *order_faults(case)]
    effects: dict[int, int] = {}
    for graph, ideal_order in ((case.seen.graph, False), (case.graph, True)):
        mine = [i for i, fault in enumerate(found) if fault.in_ideal_order is ideal_order]
        if mine:
            steps = [case.seen.inputs, *(found[i].healed for i in mine)]
            now, *without = (case.seen.graph if ideal_order is False else graph).makespans(steps)
            if ideal_order:
                now = case.seen.graph.makespans(steps[:1])[0]
            effects |= dict(zip(mine, (now - healed for healed in without), strict=True))
    faults = [*first, *(replace(fault, effect=effects[i]) for i, fault in enumerate(found))]
    result = Found((), noise, case.seen.makespan, whole)
    # What clocks show is no time at all, but everything else rests on it.
    faults.sort(
        key=lambda fault: (
            fault.kind is not FaultKind.CLOCK,
            not result.is_felt(fault),
            (fault.effect < 0) is not got_shorter if result.is_felt(fault) else False,
            -abs(fault.effect) if result.is_felt(fault) else 0,
            -abs(fault.total),
        )
    )
    return replace(result, faults=tuple(faults))
