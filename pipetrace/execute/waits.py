"""Which step runs a rank, for each way of waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from pipetrace.action import Action
from pipetrace.execute.arrivals import WatchedTransport
from pipetrace.execute.board import LaneLine, Line
from pipetrace.execute.config import RunConfig
from pipetrace.execute.dataflow import DataflowStep
from pipetrace.execute.inline import InlineStep
from pipetrace.execute.lanes import LanesStep
from pipetrace.execute.p2p import Transport
from pipetrace.execute.prefetch import PrefetchStep
from pipetrace.execute.program import Program
from pipetrace.execute.stages.base import Stage
from pipetrace.execute.step import Label, Step
from pipetrace.ready import ready_lists
from pipetrace.schedule import Schedule
from pipetrace.waiting import Wait


def step_of(
    schedule: Schedule,
    config: RunConfig,
    program: Program,
    stages: Mapping[tuple[int, int], Stage],
    transport: Transport,
    buffer: Callable[[Action], torch.Tensor],
    line: Line,
    label: Label,
    finish: Callable[[], None] = lambda: None,
    beside: LaneLine | None = None,
) -> Step:
    """What runs a rank's program as `config.wait` says, with the faults of `config.inject`.

    Args:
        schedule: What all ranks run.
        config: Options.
        program: The rank's.
        stages, transport, buffer, line, label, finish: See `Step`.
        beside: Where the schedule is in parts, the line of the all-to-all lane.
    """
    faults, delays = config.inject.on(program.rank), config.inject.into(program.rank)
    if beside is not None:
        over = WatchedTransport(transport, delays, only_delayed=True) if delays else transport
        return LanesStep(program, stages, over, buffer, line, label, finish, faults, schedule=schedule, beside=beside)
    if config.wait is Wait.DATAFLOW:
        actions = ready_lists(schedule, config.waiting)[program.rank]
        return DataflowStep(
            program, stages, transport, buffer, line, label, finish, faults, actions=actions, delays=delays
        )
    if delays:
        transport = WatchedTransport(transport, delays, only_delayed=True)
    of = InlineStep if config.wait is Wait.INLINE else PrefetchStep
    return of(program, stages, transport, buffer, line, label, finish, faults)
