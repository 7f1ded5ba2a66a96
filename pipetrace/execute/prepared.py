"""What a process of a run is made of: stages, transport, steps, recorder. One rank a process, or all in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pipetrace.errors import RunError
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.channel_transport import ChannelTransport
from pipetrace.execute.channels import channels
from pipetrace.execute.devices.base import Device
from pipetrace.execute.expert_parallel import Alone, Exchange, GroupExchange, InProcess, members_of
from pipetrace.execute.job import Job, load_factory
from pipetrace.execute.one_device import OneDeviceStep
from pipetrace.execute.p2p import GroupTransport, Store
from pipetrace.execute.program import compile_rank
from pipetrace.execute.recorder import Recorder
from pipetrace.execute.reduce import GradientReduction, LocalReduction, groups, reductions
from pipetrace.execute.result import RankCheck, worst_of
from pipetrace.execute.shapes import check_shapes
from pipetrace.execute.step import Seat
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
    exchange = GroupExchange(replica, replicas, beside or line) if replicas > 1 else Alone()
    # Where nothing has a tag, parts run as they do on a GPU.
    streams = config.device == "cuda" or (schedule.has_parts and config.ordered)
    device = _device(job, gpu) if streams else None
    workload = load_factory(job.factory)(schedule, config, _host(exchange, device))
    stages = {held: workload.stage(*held) for held in placement.held_by(pipeline_rank)}
    line.at(Phase.CONNECTING)
    exchanging = [members_of(one, schedule.ranks, replicas) for one in range(schedule.ranks if replicas > 1 else 0)]
    together = list(dict.fromkeys([*exchanging, *groups(placement, replicas)]))
    transport = _transport(job, rank, meeting, together, torch.device("cpu") if device is None else device.tensors)
    if isinstance(exchange, GroupExchange):
        exchange.connect(transport.group(exchanging[pipeline_rank]))
    recorder = Recorder(rank, job.info, device, all_threads=schedule.has_parts)
    work = reductions(placement, pipeline_rank, replica, replicas)
    reduction = GradientReduction(work, stages, transport, line, recorder.label)
    seat = Seat(program, stages, transport, workload.buffer, line, recorder.label, reduction.run)
    step = step_of(schedule, config, seat, beside, device)
    if config.preflight and config.device == "cpu":
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


def _transport(
    job: Job, rank: int, meeting: str | Store, together: Sequence[tuple[int, ...]], device: torch.device
) -> GroupTransport:
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
        device=device,
    )


def one_process(job: Job, line: Line) -> Prepared:
    """A process that is all ranks of all replicas, on one device.

    Args:
        job: What to run.
        line: Of the board.
    """
    schedule, config, replicas = job.schedule, job.config, job.info.replicas
    placement = schedule.placement
    device = _device(job)
    factory = load_factory(job.factory)
    workloads = [
        factory(schedule, config, _host(InProcess(replica, replicas) if replicas > 1 else Alone(), device))
        for replica in range(replicas)
    ]
    held = [placement.held_by(rank) for rank in range(schedule.ranks)]
    stages = [{part: workload.stage(*part) for parts in held for part in parts} for workload in workloads]
    recorder = Recorder(0, job.info, device)
    reduction = LocalReduction(placement, stages, line, recorder.label)
    out_of_order = config.wait is Wait.DATAFLOW and not schedule.has_parts
    lists = ready_lists(schedule, config.waiting) if out_of_order else None
    step = OneDeviceStep(schedule, stages, device, workloads[0].buffer, line, recorder.label, reduction.run, lists)
    streams = step.named_streams()
    if replicas > 1 and len({named["stream"] for named in streams}) < len(streams):
        raise RunError(
            f"{len(streams)} streams are more than the device keeps apart, and replicas are told apart by theirs",
            "run fewer ranks or replicas in one process",
        )
    recorder.shared = {"streams": streams, "holds": held}

    def check() -> RankCheck:
        return worst_of(
            [
                workload.check(program, {part: of[part] for part in held[program.rank]}, line.tick)
                for workload, of in zip(workloads, stages, strict=True)
                for program in step.ran
            ]
        )

    return Prepared(lambda: line.at(Phase.BARRIER), step.run, recorder, check)


def _host(exchange: Exchange, device: Device | None) -> Host:
    return Host(exchange) if device is None else Host(exchange, device.tensors, device.sleep, device.use)


def _device(job: Job, gpu: int = 0) -> Device:
    if job.config.device == "cpu":
        from pipetrace.execute.devices.threads import ThreadDevice

        return ThreadDevice()
    from pipetrace.execute.devices.cuda import CudaDevice, set_connections

    lanes = 2 if job.schedule.has_parts else 1
    # Of each rank its lanes and a communication stream, where they share the device.
    set_connections((lanes + 1) * job.schedule.ranks * job.info.replicas if job.config.one_process else 0)
    return CudaDevice(gpu)
