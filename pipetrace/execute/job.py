"""What the calling process hands to the ranks, and what it gets back. Plain picklable values, no torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipetrace.errors import RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.folder import Claim
from pipetrace.execute.result import RankCheck
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import RunInfo

if TYPE_CHECKING:
    from pipetrace.execute.workloads.base import WorkloadFactory


@dataclass(frozen=True, slots=True)
class Job:
    """A run, ready to start.

    A process has a global rank, replica × pipeline ranks + pipeline rank.

    Args:
        schedule: Of every replica; valid, past the preflight.
        config: Options.
        info: For the traces' metadata.
        claim: The run folder, and where in it the ranks write.
        factory: Where the workload is made, "package.module:function".
        stall_s: Seconds without progress of any rank before the run is given up.
    """

    schedule: Schedule
    config: RunConfig
    info: RunInfo
    claim: Claim
    factory: str
    stall_s: float

    @property
    def processes(self) -> int:
        """The pipeline ranks of all replicas, or one for all of them."""
        return 1 if self.config.one_process else self.schedule.ranks * self.info.replicas


@dataclass(frozen=True, slots=True)
class RankError:
    """What a rank that raised sends before it ends.

    Args:
        rank: Global rank.
        summary: Type and message, one line.
        hint: What to do, where the error says.
        details: Traceback.
        needs_others: Whether it came from a phase in which the rank depends on others, who may be the ones to blame.
        stopped: Whether it was told to stop, and blames nobody.
    """

    rank: int
    summary: str
    hint: str
    details: str
    needs_others: bool
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """So many steps (warm-up counted) are done on every rank; 0 says that all ranks are connected."""

    done: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The supervisor is alive; said every second."""


@dataclass(frozen=True, slots=True)
class Done:
    """All ranks ended well."""

    checks: tuple[RankCheck, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The run broke; everything has ended."""

    message: str
    hint: str


def load_factory(path: str) -> WorkloadFactory:
    """The function that "package.module:function" names.

    Raises:
        RunError: There is no such thing.
    """
    module, _, name = path.partition(":")
    try:
        factory: WorkloadFactory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise RunError(f"cannot load the workload {path!r}: {error}", "write it as package.module:function") from None
    return factory
