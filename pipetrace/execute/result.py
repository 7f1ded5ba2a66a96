"""What a run gives back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetrace.trace.run_folder import RunInfo


@dataclass(frozen=True, slots=True)
class RankCheck:
    """How one rank's results compare with the reference.

    Args:
        rank: Global rank.
        compared: Things compared: parameters' gradients, or messages for a workload without gradients.
        max_abs_error: Largest absolute difference of a gradient entry; infinite where a gradient is missing or NaN.
        max_rel_error: Largest difference relative to its own parameter's largest gradient entry.
        loss_difference: |loss - reference|; 0 on ranks that hold no last stage.
        bit_equal: Whether everything compared is the same to the last bit.
        worst: What differs most; empty when nothing does.
        ranks: How many ranks' results it stands for; see `worst_of`.
    """

    rank: int
    compared: int
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    loss_difference: float = 0.0
    bit_equal: bool = True
    worst: str = ""
    ranks: int = 1

    @property
    def error(self) -> float:
        """The number that is held against the tolerance; infinite where one of the errors is no number."""
        errors = (self.max_rel_error, self.loss_difference)
        return math.inf if any(math.isnan(error) for error in errors) else max(errors)


def worst_of(checks: Sequence[RankCheck]) -> RankCheck:
    """Several ranks' checks as one, of the rank that is furthest off."""
    worst = max(checks, key=lambda check: (check.error, check.max_abs_error))
    return replace(
        worst,
        compared=sum(check.compared for check in checks),
        loss_difference=max(check.loss_difference for check in checks),
        bit_equal=all(check.bit_equal for check in checks),
        ranks=sum(check.ranks for check in checks),
    )


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of `check`.

    Args:
        ranks: One a process: of its rank, or of all ranks that it ran.
        subject: What was compared, for the text.
        tolerance: Largest error that passes.
        why: Why this tolerance.
    """

    ranks: tuple[RankCheck, ...]
    subject: str
    tolerance: float
    why: str

    @property
    def bit_equal(self) -> bool:
        """Whether all ranks agree with the reference to the last bit."""
        return all(rank.bit_equal for rank in self.ranks)

    @property
    def passed(self) -> bool:
        """Whether all ranks are within the tolerance."""
        return bool(self.ranks) and all(rank.error <= self.tolerance for rank in self.ranks)

    @property
    def text(self) -> str:
        """One paragraph."""
        compared = sum(rank.compared for rank in self.ranks)
        if self.passed and not compared:
            return f"check passed: there are no {self.subject} to compare."
        ranks = sum(rank.ranks for rank in self.ranks)
        of = f"{compared} {self.subject} on {ranks} {'rank' if ranks == 1 else 'ranks'}"
        head = f"check {'passed' if self.passed else 'FAILED'}: {of}"
        if self.bit_equal and self.passed:
            return f"{head}, all equal to the last bit."
        worst = max(self.ranks, key=lambda rank: (rank.error, rank.max_abs_error))
        return (
            f"{head}; largest error {worst.max_rel_error:.3g} relative, {worst.max_abs_error:.3g} absolute "
            f"(rank {worst.rank}{', ' + worst.worst if worst.worst else ''}), loss off by "
            f"{max(rank.loss_difference for rank in self.ranks):.3g}; tolerance {self.tolerance:.3g}: {self.why}."
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Args:
        folder: Where its traces are.
        info: As in its `run.toml`.
        check: None where none was asked for.
        speaks: Whether it is for this process to tell of it: under torchrun only rank 0's does, and has the check.
    """

    folder: Path
    info: RunInfo
    check: CheckReport | None
    speaks: bool = True
