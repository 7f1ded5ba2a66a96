"""`pipetrace show`."""

from __future__ import annotations

from pipetrace.cli import options
from pipetrace.cli.console import print_json
from pipetrace.simulate import simulate

HELP = "Draw a schedule's tile chart in the terminal, with its figures."
EXAMPLE = "pipetrace show zb-h1 -p 4 -m 8"


def command(
    name: options.Name = None,
    ranks: options.Ranks = None,
    microbatches: options.Microbatches = None,
    source: options.From = None,
    costs_text: options.CostsText = None,
    unit: options.Unit = "ms",
    p2p: options.P2P = None,
    costs_file: options.CostsFile = None,
    as_json: options.Json = False,
) -> None:
    schedule = options.schedule_of(name, ranks, microbatches, source)
    costs = options.costs_of(costs_text, unit, p2p, costs_file)
    timeline = simulate(schedule, costs)
    if as_json:
        from pipetrace.report.summary import schedule_summary, schedules_json

        print_json(schedules_json([schedule_summary(schedule, timeline, costs)]))
        return
    from pipetrace.report.terminal import print_schedule

    print_schedule(schedule, timeline)
