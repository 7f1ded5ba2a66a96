"""The life of one rank, from its fork to its last word."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import NoReturn

import torch

from pipetrace.errors import PipetraceError
from pipetrace.execute.board import NEEDS_OTHERS, Line, Phase
from pipetrace.execute.job import Job, RankError, load_factory
from pipetrace.execute.lifeline import end_with_parent
from pipetrace.execute.p2p import GlooTransport
from pipetrace.execute.program import compile_rank
from pipetrace.execute.recorder import Recorder
from pipetrace.execute.reduce import GradientReduction, groups, reductions
from pipetrace.execute.result import RankCheck
from pipetrace.execute.waits import step_of


class StopRankError(Exception):
    """The supervisor told this rank to stop."""


class _StopSignal:
    """Turns SIGTERM into an exception, once, and only while armed: writing a trace is not to be cut short."""

    def __init__(self) -> None:
        self.armed = True
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise StopRankError


def rank_main(rank: int, job: Job, line: Line, results: Connection, scratch: Path, parent: int) -> NoReturn:
    """Runs in the forked process and ends it.

    Sends a `RankCheck` or None when all went well, a `RankError` when not: before it writes what it has recorded, so
    that the supervisor learns at once.

    Args:
        rank: Global rank.
        job: What to run.
        line: Of the board.
        results: To the supervisor.
        scratch: Folder that goes after the run.
        parent: Process id of the supervisor.
    """
    status = 1
    try:
        end_with_parent(parent)
        _redirect(scratch / f"rank{rank}.log")
        stop = _StopSignal()

        def report(error: BaseException) -> None:
            stop.armed = False
            results.send(
                RankError(
                    rank,
                    _summary(error),
                    error.hint if isinstance(error, PipetraceError) else "",
                    "".join(traceback.format_exception(error)),
                    needs_others=line.phase in NEEDS_OTHERS,
                    stopped=isinstance(error, StopRankError),
                )
            )

        try:
            check = _run(rank, job, line, scratch, report)
        except _ReportedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
            report(error)
        else:
            stop.armed = False
            results.send(check)
            line.at(Phase.DONE)
            status = 0
    finally:
        # Not sys.exit: tearing down torch and gloo takes time, and could raise after the rank's last word.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _ReportedError(Exception):
    """The supervisor knows already."""


def _run(rank: int, job: Job, line: Line, scratch: Path, report: Callable[[BaseException], None]) -> RankCheck | None:
    # More threads than one a rank would only fight over the cores.
    torch.set_num_threads(1)
    schedule, config = job.schedule, job.config
    program = compile_rank(schedule, rank)
    workload = load_factory(job.factory)(schedule, config)
    stages = {held: workload.stage(*held) for held in schedule.placement.held_by(rank)}
    line.at(Phase.CONNECTING)
    transport = GlooTransport(
        rank, schedule.ranks, scratch / "rendezvous", groups(schedule.placement), tags=config.inject.tags
    )
    recorder = Recorder(rank, job.info)
    reduction = GradientReduction(reductions(schedule.placement, rank), stages, transport, line, recorder.label)
    step = step_of(schedule, config, program, stages, transport, workload.buffer, line, recorder.label, reduction.run)

    def meet() -> None:
        line.at(Phase.BARRIER)
        transport.barrier()

    for _ in range(config.warmup):
        meet()
        step.run()
    recorder.start()
    try:
        for number in range(config.steps):
            meet()
            with recorder.label(f"ProfilerStep#{number}"):
                step.run()
        # Nobody leaves, and so closes its connections, before all have what they need.
        meet()
    except BaseException as error:
        report(error)
        recorder.finish(job.claim.staging, scratch)
        raise _ReportedError from error
    line.at(Phase.WRITING)
    recorder.finish(job.claim.staging, scratch)
    if not config.check:
        return None
    line.at(Phase.CHECKING)
    # Gradients were added up in the order of the last step, which the list need not have.
    return workload.check(step.ran, stages, line.tick)


def _summary(error: BaseException) -> str:
    text = " ".join((error.message if isinstance(error, PipetraceError) else str(error)).split())
    name = type(error).__name__
    return f"{name}: {text[:300]}" if text else name


def _redirect(path: Path) -> None:
    """Sends what the rank prints, and what C code prints as it dies, to a file of its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()
