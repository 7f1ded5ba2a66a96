"""What a process of a run is made of: stages, transport, steps, recorder. One rank a process, or all in one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pipetrace.execute.board import Line, Phase
from pipetrace.execute.channel_transport import ChannelTransport
from pipetrace.execute.channels import channels
from pipetrace.execute.devices.base import Device
from pipetrace.execute.expert_parallel import Alone, GlooExchange, members_of
from pipetrace.execute.job import Job, load_factory
from pipetrace.execute.one_device import OneDeviceStep
from pipetrace.execute.p2p import GroupTransport, Store
from pipetrace.execute.program import compile_rank
from pipetrace.execute.recorder import Recorder
from pipetrace.execute.reduce import GradientReduction, Reduction, groups, reductions
from pipetrace.execute.result import RankCheck, worst_of
from pipetrace.execute.shapes import check_shapes
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.base import Host
from pipetrace.ready import ready_lists
from pipetrace.waiting import Wait


@dataclass(frozen=True, slots=True)
class Prepared:
    """A process's part in a run.

    Args:
        meet: Returns when all processes are here.
        step: Runs one step.
        recorder: Of the process.
        check: Compares what the last step left with a reference.
    """

    meet: Callable[[], None]
    step: Callable[[], None]
    recorder: Recorder
    check: Callable[[], RankCheck]


def one_rank(rank: int, job: Job, line: Line, meeting: str | Store, *, gpu: int) -> Prepared:
    """A process that is one rank of one replica.

    Args:
        rank: Global rank.
        job: What to run.
        line: Of the board.
        meeting: Where all ranks meet: file:// and a file that all see, not there yet, or a store.
        gpu: Which of the machine's it has, on `cuda`.
    """
    schedule, config, replicas = job.schedule, job.config, job.info.replicas
    placement = schedule.placement
    replica, pipeline_rank = divmod(rank, schedule.ranks)
    program = compile_rank(schedule, pipeline_rank)
    beside = line.beside() if schedule.has_parts else None
    exchange = GlooExchange(replica, replicas, beside or line) if replicas > 1 else Alone()
    device = _cuda(job, gpu) if config.device == "cuda" else None
    host = Host(exchange) if device is None else Host(exchange, device.tensors, device.sleep)
    workload = load_factory(job.factory)(schedule, config, host)
    stages = {held: workload.stage(*held) for held in placement.held_by(pipeline_rank)}
    line.at(Phase.CONNECTING)
    exchanging = [members_of(one, schedule.ranks, replicas) for one in range(schedule.ranks if replicas > 1 else 0)]
    together = list(dict.fromkeys([*exchanging, *groups(placement, replicas)]))
    transport = _transport(job, rank, meeting, together)
    if isinstance(exchange, GlooExchange):
        exchange.connect(transport.group(exchanging[pipeline_rank]))
    recorder = Recorder(rank, job.info, device, all_threads=schedule.has_parts)
    work = reductions(placement, pipeline_rank, replica, replicas)
    reduction = GradientReduction(work, stages, transport, line, recorder.label)
    step = step_of(
        schedule, config, program, stages, transport, workload.buffer, line, recorder.label, reduction.run, beside
    )
    if config.preflight and device is None:
        line.at(Phase.CONNECTING)
        check_shapes(program, transport.gather(step.shapes)[rank - pipeline_rank :][: schedule.ranks])

    def meet() -> None:
        line.at(Phase.BARRIER)
        transport.barrier()

    def run() -> None:
        step.run()
        if device is not None:
            # What was launched is not yet done: waiting for a transfer holds a stream up, not the process.
            line.at(Phase.DEVICE)
            device.synchronize()

    # Gradients were added up in the order of the last step, which the list need not have.
    return Prepared(meet, run, recorder, lambda: workload.check(step.ran, stages, line.tick))


def _transport(job: Job, rank: int, meeting: str | Store, together: Sequence[tuple[int, ...]]) -> GroupTransport:
    schedule, config = job.schedule, job.config
    first = rank - rank % schedule.ranks
    if config.device == "cpu" and not config.ordered:
        tags = config.inject.tags
        return GroupTransport(rank, job.processes, meeting, together, first=first, tags=tags)
    return ChannelTransport(
        channels([compile_rank(schedule, one) for one in range(schedule.ranks)]),
        rank,
        job.processes,
        meeting,
        together,
        first=first,
        per_replica=schedule.ranks,
        backend="nccl" if config.device == "cuda" else "gloo",
    )


class _Nobody:
    """Nothing travels to another process, so that there is nothing to add up."""

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None:
        """See `Transport`."""


def one_process(job: Job, line: Line) -> Prepared:
    """A process that is all ranks, on one device.

    Args:
        job: What to run; one replica.
        line: Of the board.
    """
    schedule, config = job.schedule, job.config
    placement = schedule.placement
    device = _device(job)
    workload = load_factory(job.factory)(schedule, config, Host(Alone(), device.tensors, device.sleep))
    programs = [compile_rank(schedule, rank) for rank in range(schedule.ranks)]
    held = {rank: placement.held_by(rank) for rank in range(schedule.ranks)}
    stages = {part: workload.stage(*part) for parts in held.values() for part in parts}
    # All copies of a stage are here: each stage is one reduction, found on the first rank that holds it.
    work: dict[int, Reduction] = {}
    for rank in range(schedule.ranks):
        for reduction in reductions(placement, rank):
            copies = tuple((pipe, reduction.action.stage) for pipe in range(placement.pipes))
            alone = dataclasses.replace(reduction, held=copies, ranks=(0,), of_replica=(0,))
            work.setdefault(reduction.action.stage, alone)
    recorder = Recorder(0, job.info, device)
    reduce = GradientReduction(list(work.values()), stages, _Nobody(), line, recorder.label)
    lists = ready_lists(schedule, config.waiting) if config.wait is Wait.DATAFLOW else None
    label = recorder.label
    step = OneDeviceStep(schedule.links, programs, stages, device, workload.buffer, line, label, reduce.run, lists)
    recorder.shared = {"streams": step.named_streams(), "holds": [held[rank] for rank in sorted(held)]}

    def check() -> RankCheck:
        return worst_of(
            [
                workload.check(program, {part: stages[part] for part in held[program.rank]}, line.tick)
                for program in step.ran
            ]
        )

    return Prepared(lambda: line.at(Phase.BARRIER), step.run, recorder, check)


def _cuda(job: Job, gpu: int = 0) -> Device:
    from pipetrace.execute.devices.cuda import CudaDevice, set_connections

    # Of each rank a compute and a communication stream, where they share the device.
    set_connections(2 * job.schedule.ranks if job.config.one_process else 0)
    return CudaDevice(gpu)


def _device(job: Job) -> Device:
    if job.config.device == "cuda":
        return _cuda(job)
    from pipetrace.execute.devices.threads import ThreadDevice

    return ThreadDevice()
