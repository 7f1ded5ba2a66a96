"""The process between the caller and the ranks.

It imports torch once, forks the ranks from that (a fork takes milliseconds, an import seconds), watches them, and ends
them when something breaks. Being a process of its own it never imports the caller's main module, and the caller's
threads, signal handlers and open files are no concern of the ranks.

It ends when its work is done or when the caller does; no rank outlives it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import NoReturn

from pipetrace.execute.board import NEEDS_OTHERS, Board, Phase
from pipetrace.execute.folder import error_name
from pipetrace.execute.job import Beat, Done, Failed, Job, RankError, Step
from pipetrace.execute.output import log_name, without_marks
from pipetrace.execute.result import RankCheck
from pipetrace.execute.signals import is_stopped, signal_name
from pipetrace.trace.run_folder import trace_name

_POLL_S = 0.1
_BEAT_S = 1.0
_GRACE_S = 0.5  # after the first failure, for the one that caused it to be heard of
_PATIENCE_S = 3.0  # after the order to stop, for a rank to obey
_AGAIN_S = 3.0  # after one was killed, for those that waited for it to speak
_LIMIT_S = 12.0  # after the first failure, for everything to have ended
_SLOW_S = 60.0  # at least, for what may take long however short the time-out for an action is
_SLOW = frozenset({Phase.STARTING, Phase.CONNECTING, Phase.WRITING})
_MAX_NAMED = 16
_LOG_TAIL = 20_000


@dataclass(slots=True)
class _Rank:
    """A rank as the supervisor sees it."""

    rank: int
    pid: int
    results: Connection
    open: bool = True
    alive: bool = True
    killed: bool = False
    check: RankCheck | None = None
    error: RankError | None = None


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that broke.

    Args:
        rank: Where; None when no single rank is to blame.
        what: What happened, to be read after "rank 2 was in 2F3 and".
        hint: What to do.
        certain: Whether it cannot be the consequence of another rank's end.
    """

    rank: int | None
    what: str
    hint: str
    certain: bool


def main(control: Connection) -> NoReturn:
    """Runs the jobs that come over `control`, one after the other, and ends the process.

    Args:
        control: To the caller; its closing says that the caller is gone, or needs no more.
    """
    order = _next_job(control)
    try:
        import pipetrace.execute.worker  # noqa: F401 - once, before the forks
    except ImportError as error:
        control.send(Failed(f"torch cannot be imported: {error}", "install pipetrace with its dependencies"))
        os._exit(1)
    with contextlib.suppress(ImportError):
        # The profiler imports it at its first start: a second here, and several when all ranks do it at once.
        importlib.import_module("torch._dynamo")
    # Objects that outlive the run need no looking at: a collection would take tens of ms out of some action.
    gc.collect()
    gc.freeze()
    while True:
        job, scratch = order
        outcome = Supervisor(control, job, scratch).run()
        if outcome is None:
            for folder in (scratch, job.claim.staging):
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        try:
            control.send(outcome)
        except OSError:
            os._exit(0)
        if isinstance(outcome, Failed):
            # The caller gives no job after one that broke; what told this one to stop has been heard already.
            os._exit(0)
        order = _next_job(control)


def _next_job(control: Connection) -> tuple[Job, Path]:
    """Waits for a job; ends the process when there is none any more."""
    try:
        order = control.recv()
    except (EOFError, OSError):
        os._exit(0)
    if not isinstance(order, tuple):
        os._exit(0)  # told to stop
    return order


class Supervisor:
    """Starts, watches and ends the ranks of one job.

    Args:
        control: To the caller.
        job: What to run.
        scratch: Folder that the caller removes.
    """

    def __init__(self, control: Connection, job: Job, scratch: Path) -> None:
        self._control = control
        self._job = job
        self._scratch = scratch
        self._board = Board(job.processes)
        self._ranks: list[_Rank] = []
        self._events: list[_Event] = []
        self._states: list[str] = []
        self._failed_at: float | None = None
        self._stop_sent = False
        self._next_kill = 0.0
        self._orphaned = False
        self._told = -1
        self._next_beat = 0.0
        self._ticks = (-1, 0.0)

    def run(self) -> Done | Failed | None:
        """Returns when every rank has ended; None when the caller has gone."""
        self._start_ranks()
        while any(rank.alive for rank in self._ranks):
            self._beat()
            self._listen()
            self._reap()
            if self._failed_at is None:
                self._tell_progress()
                self._look_for_stall()
            else:
                self._end_ranks(time.monotonic() - self._failed_at)
        if self._orphaned:
            return None
        if self._failed_at is not None:
            return self._verdict()
        self._tell_progress()
        return Done(tuple(rank.check for rank in self._ranks if rank.check is not None))

    def _start_ranks(self) -> None:
        """Forks the ranks, until one cannot be forked or breaks, or the caller goes: hundreds take minutes."""
        for rank in range(self._job.processes):
            try:
                self._ranks.append(self._fork(rank))
            except OSError as error:
                of = f"rank {rank} of {self._job.processes} cannot be started"
                self._fail(_Event(None, f"{of}: {error.strerror or error}", "run fewer ranks", certain=True))
            self._beat()
            self._listen(0.0)
            self._reap()
            if self._failed_at is not None:
                return

    def _fork(self, rank: int) -> _Rank:
        read, write = Pipe(duplex=False)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            from pipetrace.execute.worker import rank_main

            # A copy of `control` in a rank would keep the caller from seeing the supervisor's end.
            for connection in (self._control, read, *(other.results for other in self._ranks)):
                connection.close()
            rank_main(rank, self._job, self._board.line(rank), write, self._scratch, parent)
        write.close()
        return _Rank(rank, pid, read)

    def _beat(self) -> None:
        """Says that this process is alive; a caller that does not listen is not waited for."""
        if self._orphaned or time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + _BEAT_S
        with contextlib.suppress(OSError):
            if select.select([], [self._control], [], 0)[1]:
                self._control.send(Beat())

    def _listen(self, seconds: float = _POLL_S) -> None:
        """Waits a moment for whatever comes first, and takes it in."""
        sources: list[Connection] = [rank.results for rank in self._ranks if rank.open]
        if not self._orphaned:
            sources.append(self._control)
        ready = wait(sources, timeout=seconds)
        for rank in self._ranks:
            if rank.open and rank.results in ready:
                self._hear(rank)
        if self._control in ready:
            try:
                self._control.recv()
            except (EOFError, OSError):
                self._orphaned = True
                self._kill(self._ranks)
            self._fail(_Event(None, "the run was stopped", "", certain=True))

    def _hear(self, rank: _Rank) -> None:
        try:
            message = rank.results.recv()
        except (EOFError, OSError):
            rank.open = False
            rank.results.close()
            return
        if isinstance(message, RankError):
            rank.error = message
            if message.stopped and not self._stop_sent:
                self._fail(_Event(rank.rank, "was told to end by SIGTERM, not by pipetrace", "", certain=True))
            elif not message.stopped:
                event = _Event(rank.rank, f"raised {message.summary}", message.hint, certain=not message.needs_others)
                self._fail(event)
        else:
            rank.check = message

    def _reap(self) -> None:
        for rank in self._ranks:
            if rank.alive:
                self._reap_one(rank)

    def _reap_one(self, rank: _Rank) -> None:
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid == 0:
            return
        rank.alive = False
        # Its last word may have come between listening and here.
        while rank.open and rank.results.poll():
            self._hear(rank)
        code = os.waitstatus_to_exitcode(status)
        if code == 0 or rank.killed or rank.error is not None:
            return
        if self._stop_sent and code == -signal.SIGTERM:
            return  # it was told to before it had begun to listen
        if code < 0:
            name = signal_name(-code)
            hint = "the system kills with SIGKILL when memory runs out" if name == "SIGKILL" else ""
            self._fail(_Event(rank.rank, f"was killed by {name}", hint, certain=True))
        else:
            self._fail(_Event(rank.rank, f"ended with status {code}", "", certain=not self._stop_sent))

    def _fail(self, event: _Event) -> None:
        self._events.append(event)
        if self._failed_at is None:
            self._failed_at = time.monotonic()
            self._states = self._describe()

    def _describe(self) -> list[str]:
        return [self._board.describe(rank.rank, self._job.schedule) for rank in self._ranks]

    def _tell_progress(self) -> None:
        if self._told < 0:
            if any(self._board.phase(rank.rank) <= Phase.CONNECTING for rank in self._ranks):
                return
            self._tell(0)
        if (done := self._board.steps_done) != self._told:
            self._tell(done)

    def _tell(self, done: int) -> None:
        self._told = done
        # The caller's absence shows on the next reading.
        with contextlib.suppress(OSError):
            self._control.send(Step(done))

    def _look_for_stall(self) -> None:
        ticks, now = self._board.ticks, time.monotonic()
        if ticks != self._ticks[0]:
            self._ticks = ticks, now
            return
        phases = {rank.rank: self._board.phase(rank.rank) for rank in self._ranks if rank.alive}
        patience = self._job.stall_s
        if not _SLOW.isdisjoint(phases.values()):
            patience = max(patience, _SLOW_S)
        if now - self._ticks[1] > patience:
            stopped = [rank for rank in phases if is_stopped(self._ranks[rank].pid)]
            if stopped:
                self._fail(
                    _Event(
                        stopped[0],
                        f"is stopped, and nothing moved for {patience:g} s",
                        "SIGSTOP or a debugger stops a process; SIGCONT lets it go on",
                        certain=True,
                    )
                )
                return
            # Who waits is not to blame for the stall, as long as somebody does not.
            busy = [rank for rank, phase in phases.items() if phase not in NEEDS_OTHERS]
            self._fail(
                _Event(
                    busy[0] if busy else min(phases),
                    f"nothing moved for {patience:g} s",
                    "give a longer timeout where an action may take that long",
                    certain=True,
                )
            )

    def _end_ranks(self, since: float) -> None:
        """Ends what still runs, gently as long as there is time, so that traces are kept."""
        alive = [rank for rank in self._ranks if rank.alive]
        if since > _LIMIT_S:
            self._kill(alive)
        elif since > _GRACE_S and not self._stop_sent:
            self._stop_sent = True
            for rank in alive:
                os.kill(rank.pid, signal.SIGTERM)
                # One that was stopped obeys too, once it goes on.
                os.kill(rank.pid, signal.SIGCONT)
        elif since > max(_PATIENCE_S, self._next_kill):
            # Ranks stuck in C code obey nobody, but they wake up when the rank they wait for is gone: end those that
            # wait for nobody, then the others one at a time. Ranks that have spoken are writing their traces.
            silent = [rank for rank in alive if rank.error is None and not rank.killed and not self._writes(rank)]
            busy = [rank for rank in silent if self._board.phase(rank.rank) not in NEEDS_OTHERS]
            self._kill(busy or silent[:1])
            self._next_kill = since + _AGAIN_S

    def _writes(self, rank: _Rank) -> bool:
        return self._board.phase(rank.rank) is Phase.WRITING

    def _kill(self, ranks: Sequence[_Rank]) -> None:
        for rank in ranks:
            if rank.alive:
                rank.killed = True
                os.kill(rank.pid, signal.SIGKILL)

    def _verdict(self) -> Failed:
        event = next((event for event in self._events if event.certain), self._events[0])
        folder, staging = self._job.claim.folder, self._job.claim.staging
        kept = sum((staging / trace_name(rank.rank)).exists() for rank in self._ranks)
        replaces = self._job.claim.replaces
        states = dict(enumerate(self._states))
        message, hints = event.what, [event.hint]
        if event.rank is not None:
            message = f"rank {event.rank} {states.pop(event.rank)} and {event.what}"
            said = self._last_words(self._ranks[event.rank])
            if said and (kept or not replaces):
                with contextlib.suppress(OSError):
                    name = error_name(event.rank)
                    (staging / name).write_text(said, encoding="utf-8")
                    hints.append(f"what rank {event.rank} said is in {folder / name}")
        named = [f"rank {rank} {state}" for rank, state in states.items()]
        if len(named) > _MAX_NAMED:
            named[_MAX_NAMED:] = [f"and {len(named) - _MAX_NAMED} more ranks"]
        if kept:
            hints.append(f"{kept} of {len(self._ranks)} traces, up to the failure, are in {folder}")
        elif replaces:
            hints.append(f"nothing was recorded, and the earlier run in {folder} is as it was")
        return Failed("; ".join([message, *named]), "; ".join(hint for hint in hints if hint))

    def _last_words(self, rank: _Rank) -> str:
        """A rank's traceback, and the end of what it printed."""
        details = rank.error.details if rank.error is not None else ""
        try:
            log = (self._scratch / log_name(rank.rank)).read_text(encoding="utf-8", errors="replace")
        except OSError:
            log = ""
        return "\n".join(part for part in (details, without_marks(log)[-_LOG_TAIL:]) if part.strip())
