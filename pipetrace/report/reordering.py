"""What it brings to leave the list order."""

from __future__ import annotations

from dataclasses import replace

from pipetrace.costs import Costs
from pipetrace.report.units import unit_for
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Wait, Waiting


def list_order_makespan(schedule: Schedule, costs: Costs, waiting: Waiting) -> int | None:
    """The makespan in ns if every rank kept its list's order; None where it does so anyway."""
    if waiting.policy is not Wait.DATAFLOW or not waiting.reorder:
        return None
    return simulate(schedule, costs, replace(waiting, reorder=False)).makespan


def reordering_line(schedule: Schedule, costs: Costs, waiting: Waiting, timeline: Timeline) -> str | None:
    """One line that sets the makespan of a timeline against that of the list order; None where there is one order.

    Starting the first action that is ready can be slower: it may delay one that arrives while it runs.
    """
    in_order = list_order_makespan(schedule, costs, waiting)
    if in_order is None:
        return None
    unit = unit_for(max(in_order, timeline.makespan))
    by = timeline.makespan - in_order
    verdict = f"{unit.text(abs(by))} {'slower' if by > 0 else 'faster'}" if by else "the same"
    return f"out of order {unit.text(timeline.makespan)}, in list order {unit.text(in_order)}: {verdict}"
