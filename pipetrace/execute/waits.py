"""Which step runs a rank, for each way of waiting."""

from __future__ import annotations

from dataclasses import replace

from pipetrace.execute.arrivals import WatchedTransport
from pipetrace.execute.board import LaneLine
from pipetrace.execute.config import RunConfig
from pipetrace.execute.dataflow import DataflowStep
from pipetrace.execute.devices.base import Device
from pipetrace.execute.inline import InlineStep
from pipetrace.execute.lanes import LanesStep
from pipetrace.execute.prefetch import PrefetchStep
from pipetrace.execute.step import Seat, Step
from pipetrace.execute.streams import StreamsStep
from pipetrace.ready import ready_lists
from pipetrace.schedule import Schedule
from pipetrace.waiting import Wait


def step_of(
    schedule: Schedule, config: RunConfig, of: Seat, beside: LaneLine | None = None, device: Device | None = None
) -> Step:
    """What runs a rank's program as `config.wait` says, with the faults of `config.inject`.

    Args:
        schedule: What all ranks run.
        config: Options.
        of: What the rank's steps are made of; faults and delays are added.
        beside: Where the schedule is in parts, the line of the all-to-all lane.
        device: Where it is in parts and its lanes are streams, what these are of; on CPUs they are threads otherwise.
    """
    rank = of.program.rank
    delays = config.inject.into(rank)
    of = replace(of, faults=config.inject.on(rank))
    dataflow = config.wait is Wait.DATAFLOW and beside is None
    if delays and not dataflow:
        of = replace(of, transport=WatchedTransport(of.transport, delays, only_delayed=True))
    if beside is not None:
        ahead = config.wait is not Wait.INLINE
        if device is not None:
            return StreamsStep(of, schedule=schedule, device=device, beside=beside, ahead=ahead)
        return LanesStep(of, schedule=schedule, beside=beside, ahead=ahead)
    if dataflow:
        return DataflowStep(of, actions=ready_lists(schedule, config.waiting)[rank], delays=delays)
    return (InlineStep if config.wait is Wait.INLINE else PrefetchStep)(of)
