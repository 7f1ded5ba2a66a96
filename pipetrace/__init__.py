"""pipetrace: pipeline-parallel schedules, ideal and measured, in one timeline.

>>> import pipetrace
>>> schedule = pipetrace.build("zb-h1", ranks=4, microbatches=8)
>>> pipetrace.simulate(schedule).makespan
27000000
"""

from pipetrace.action import Action, Kind, Pair, Part, parse
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.costs_io import parse_costs
from pipetrace.errors import PipetraceError
from pipetrace.label import label, trace_handler
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.version import __version__

__all__ = [
    "Action",
    "Costs",
    "Kind",
    "Lane",
    "Pair",
    "PairCost",
    "Part",
    "PipetraceError",
    "Placement",
    "RankOrder",
    "Schedule",
    "StageCosts",
    "Tile",
    "Timeline",
    "__version__",
    "bubbles",
    "build",
    "label",
    "parse",
    "parse_costs",
    "peak_in_flight",
    "simulate",
    "trace_handler",
]
