"""Runs under `torchrun`: the processes are there already, on one machine or several, and each is one rank.

torchrun starts the ranks, says to each which one it is, and ends all when one fails, so that there is no supervisor
here. Rank 0 makes the run folder and, at the end, moves into it what all have written: it must lie where every
machine sees it. What the ranks have to tell each other beside that goes through torchrun's own store.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipetrace.errors import RunError
from pipetrace.execute.folder import Claim, claim
from pipetrace.execute.job import Job
from pipetrace.execute.result import RankCheck
from pipetrace.trace.run_folder import RunInfo

if TYPE_CHECKING:
    from pipetrace.execute.p2p import Store

_KEY = "pipetrace/"


@dataclass(frozen=True, slots=True)
class Elastic:
    """What torchrun says to a process.

    Args:
        rank: Global rank.
        local_rank: Which of this machine's.
        world: Processes there are.
    """

    rank: int
    local_rank: int
    world: int


def elastic(environment: Mapping[str, str] = os.environ) -> Elastic | None:
    """What torchrun said to this process; None where it did not start it.

    Raises:
        RunError: A variable is no number.
    """
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    try:
        return Elastic(*(int(environment[name]) for name in names))
    except (KeyError, ValueError):
        raise RunError(
            "torchrun's environment is not whole: it sets " + ", ".join(names), "start the run with torchrun"
        ) from None


def run_here(
    job: Callable[[Claim], Job], folder: Path, of: Elastic, tell: Callable[[str], None]
) -> tuple[RankCheck, ...]:
    """Runs this process's rank, and returns when all ranks are done.

    Args:
        job: The run, once it is known where it writes.
        folder: The run folder, absolute.
        of: What torchrun said.
        tell: Is told what happens; only rank 0 tells.

    Returns:
        On rank 0 one check a rank, where checks were asked for; elsewhere nothing.

    Raises:
        RunError: There are more or fewer processes than ranks, or the folder is not the same on all machines.
        OutputError: The folder cannot be used.
    """
    if of.rank != 0:
        return _other(job, folder, of)
    planned = job(Claim(folder, folder, replaces=False))
    _check_size(planned, of)
    with claim(folder, planned.schedule, planned.info) as claimed:
        store = _store()
        store.set(_KEY + "run", json.dumps({"staging": str(claimed.staging), "info": planned.info.to_dict()}))
        tell(f"running as rank 0 of {of.world} under torchrun")
        own = _run(replace(planned, claim=claimed), of, store)
        checks = [own] if own is not None else []
        for rank in range(1, of.world):
            said = store.get(f"{_KEY}done/{rank}").decode()
            if own is not None:
                checks.append(_check_from(said))
        return tuple(checks)


def _other(job: Callable[[Claim], Job], folder: Path, of: Elastic) -> tuple[RankCheck, ...]:
    _check_size(job(Claim(folder, folder, replaces=False)), of)
    store = _store()
    told = json.loads(store.get(_KEY + "run"))
    staging = Path(told["staging"])
    if not staging.is_dir():
        raise RunError(
            f"rank {of.rank} does not see {staging.parent}, where rank 0 writes",
            "give -o a folder on a file system that all machines share",
        )
    # One description for all: each process would say that the run began when it did itself.
    own = replace(job(Claim(staging.parent, staging, replaces=False)), info=RunInfo.from_dict(told["info"]))
    check = _run(own, of, store)
    store.set(f"{_KEY}done/{of.rank}", "" if check is None else _check_to(check))
    return ()


def _check_size(job: Job, of: Elastic) -> None:
    if job.processes != of.world:
        raise RunError(
            f"torchrun started {of.world} processes, but the run has {job.processes} ranks",
            f"give torchrun {job.processes} processes over all machines, or the run as many ranks (-p)",
        )


def _store() -> Store:
    from torch.distributed.rendezvous import rendezvous

    store: Store = next(iter(rendezvous("env://")))[0]
    return store


def _run(job: Job, of: Elastic, store: Store) -> RankCheck | None:
    from pipetrace.execute.board import Board
    from pipetrace.execute.prepared import one_rank
    from pipetrace.execute.worker import ReportedError, run_steps, summary_of

    board = Board(job.processes)
    line = board.line(of.rank)
    with tempfile.TemporaryDirectory(prefix="pipetrace-", ignore_cleanup_errors=True) as scratch:
        try:
            prepared = one_rank(of.rank, job, line, store, gpu=of.local_rank)
            return run_steps(prepared, job, line, Path(scratch), _end_in_peace)
        except (ReportedError, RuntimeError) as error:
            raised = error.__cause__ if isinstance(error, ReportedError) else error
            if isinstance(raised, KeyboardInterrupt) or raised is None:
                raise KeyboardInterrupt from None
            how = "was told to end" if isinstance(raised, SystemExit) else f"raised {summary_of(raised)}"
            raise RunError(
                f"rank {of.rank} {board.describe(of.rank, job.schedule)} and {how}",
                "where it waited for another rank, that one may have ended first: torchrun names it",
            ) from None


def _end_in_peace(_error: BaseException) -> None:
    """Lets a rank that broke write what it has recorded: torchrun tells it to end as soon as another has."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _check_to(check: RankCheck) -> str:
    return json.dumps(asdict(check))


def _check_from(text: str) -> RankCheck:
    return RankCheck(**json.loads(text))
