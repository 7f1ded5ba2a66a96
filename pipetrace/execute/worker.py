"""The life of one rank, from its fork to its last word."""

from __future__ import annotations

import faulthandler
import io
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
from pipetrace.execute.job import Job, RankError
from pipetrace.execute.lifeline import end_with_parent
from pipetrace.execute.output import log_name
from pipetrace.execute.prepared import Prepared, one_process, one_rank
from pipetrace.execute.result import RankCheck
from pipetrace.execute.signals import held_back


class StopRankError(Exception):
    """The supervisor told this rank to stop."""


class _StopSignal:
    """Turns SIGTERM into an exception, once, and only while armed."""

    def __init__(self) -> None:
        self.armed = True
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise StopRankError


def rank_main(rank: int, job: Job, line: Line, results: Connection, scratch: Path, parent: int) -> NoReturn:
    """Runs in the forked process and ends it, whatever happens.

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
        stop = _StopSignal()

        def report(error: BaseException) -> None:
            stop.armed = False
            results.send(
                RankError(
                    rank,
                    summary_of(error),
                    error.hint if isinstance(error, PipetraceError) else "",
                    "".join(traceback.format_exception(error)),
                    needs_others=line.phase in NEEDS_OTHERS,
                    stopped=isinstance(error, StopRankError),
                )
            )

        try:
            end_with_parent(parent)
            _redirect(scratch / log_name(rank))
            check = _run(rank, job, line, scratch, report)
            stop.armed = False
            results.send(check)
            line.at(Phase.DONE)
            status = 0
        except ReportedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
            _surely(report, error)
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Not sys.exit: tearing down torch and gloo takes time, and could raise after the rank's last word. And not
            # past here: above is the supervisor's own code.
            os._exit(status)


class ReportedError(Exception):
    """What a step raised, its cause, has been reported already."""


def _surely(report: Callable[[BaseException], None], error: BaseException) -> None:
    """Reports what was raised, also where the order to end, which comes once, comes just then."""
    try:
        report(error)
    except (StopRankError, SystemExit):
        report(error)


def _run(rank: int, job: Job, line: Line, scratch: Path, report: Callable[[BaseException], None]) -> RankCheck | None:
    # More threads than one a rank would only fight over the cores.
    torch.set_num_threads(1)
    if job.config.one_process:
        prepared = one_process(job, line)
    else:
        prepared = one_rank(rank, job, line, f"file://{scratch / 'rendezvous'}", gpu=rank)
    return run_steps(prepared, job, line, scratch, report)


def run_steps(
    prepared: Prepared, job: Job, line: Line, scratch: Path, report: Callable[[BaseException], None]
) -> RankCheck | None:
    """Runs the steps of a process, records those that are to be, and checks the last where that was asked for.

    Args:
        prepared: The process's part.
        job: What is run.
        line: Of the board.
        scratch: Folder that goes after the run.
        report: Is told what a recorded step raised, before what was recorded is written.
    """
    config, recorder = job.config, prepared.recorder
    for _ in range(config.warmup):
        prepared.meet()
        prepared.step()
    line.at(Phase.STARTING)
    recorder.start()
    try:
        for number in range(config.steps):
            prepared.meet()
            with recorder.label(f"ProfilerStep#{number}"):
                prepared.step()
        # Nobody leaves, and so closes its connections, before all have what they need.
        prepared.meet()
    except BaseException as error:
        _surely(report, error)
        recorder.finish(job.claim.staging, scratch)
        raise ReportedError from error
    line.at(Phase.WRITING)
    # A trace that is being written is not cut short because something broke on another rank.
    with held_back(signal.SIGTERM):
        recorder.finish(job.claim.staging, scratch)
    if not config.check:
        return None
    line.at(Phase.CHECKING)
    return prepared.check()


def summary_of(error: BaseException) -> str:
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # The caller shows it as it comes.
            stream.reconfigure(line_buffering=True)
    faulthandler.enable()
