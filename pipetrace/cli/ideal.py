"""The ideal that `gen` and `show` tell of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipetrace.cli import options
from pipetrace.cli.cost_options import AllCosts
from pipetrace.cli.moe_options import MoeOptions, Planned
from pipetrace.cli.schedule_options import Sizes
from pipetrace.cli.wait_options import WaitOptions
from pipetrace.metrics import MemorySizes
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from pipetrace.waiting import Waiting


@dataclass(frozen=True)
class Ideal:
    """A schedule, simulated.

    Args:
        planned: What was, with its costs.
        timeline: What came out.
        waiting: How its ranks wait.
        sizes: Of what they hold; None where nothing is said of it.
    """

    planned: Planned
    timeline: Timeline
    waiting: Waiting
    sizes: MemorySizes | None


def ideal_of(
    sizes: Sizes,
    costs: AllCosts,
    wait: WaitOptions,
    moe: MoeOptions,
    name: options.Name,
    source: options.From,
    comms: options.Comms,
) -> Ideal:
    """What the command line asks for.

    Raises:
        typer.BadParameter, CostError, ScheduleError: The options cannot be read or do not go together.
    """
    planned = moe.plan(lambda of: options.listed(sizes.schedule(name, source, of), comms), costs)
    waiting = wait.waiting(costs.unit)
    if planned.parts is not None:
        planned = replace(planned, parts=replace(planned.parts, waiting=waiting))
    timeline, of_memory = simulate(planned.schedule, planned.costs, waiting), costs.memory_sizes()
    if of_memory is not None:
        of_memory.check_stages(planned.schedule.stages, planned.schedule.name)
    return Ideal(planned, timeline, waiting, of_memory)


def print_summary(of: Ideal) -> None:
    """Prints the figures as JSON."""
    from pipetrace.cli.console import print_json
    from pipetrace.report.summary import schedule_summary, schedules_json

    planned = of.planned
    summary = schedule_summary(
        planned.schedule, of.timeline, planned.costs, sizes=of.sizes, waiting=of.waiting, parts=planned.parts
    )
    print_json(schedules_json([summary]))
