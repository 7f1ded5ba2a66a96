"""The expert-parallel group of a pipeline rank: the same rank of every replica, and all-to-alls among them.

Every replica runs the same lists, so that the members of a group come to their all-to-alls in the same order and never
wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
import torch.distributed as dist

from pipetrace.execute.board import Line


def members_of(rank: int, ranks: int, replicas: int) -> tuple[int, ...]:
    """The global ranks of one pipeline rank's group; a global rank is replica × `ranks` + pipeline rank."""
    return tuple(replica * ranks + rank for replica in range(replicas))


class Exchange(Protocol):
    """All-to-alls among the replicas of one pipeline rank.

    Args:
        replica: Which member this is.
        replicas: How many there are.
    """

    @property
    def replica(self) -> int: ...

    @property
    def replicas(self) -> int: ...

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """Gives rows to every member and takes theirs.

        Args:
            rows: Shape (sum of `sent`, width), for member 0 first.
            sent: How many go to each member.
            received: How many come from each.

        Returns:
            What came, from member 0 first; shape (sum of `received`, width).
        """


class Alone:
    """One replica: what it gives it takes."""

    replica, replicas = 0, 1

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:  # noqa: ARG002
        """See `Exchange`."""
        return rows


class GlooExchange:
    """All-to-alls over gloo.

    A workload is made with one before the ranks are connected, and uses it afterwards.

    Args:
        replica, replicas: Which of how many.
        line: Where the rank says that it waits for the others.
    """

    def __init__(self, replica: int, replicas: int, line: Line | None = None) -> None:
        self.replica, self.replicas = replica, replicas
        self._line = line
        self._group: dist.ProcessGroup | None = None

    def connect(self, group: dist.ProcessGroup) -> None:
        """Takes the group over which it goes."""
        self._group = group

    def all_to_all(self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        """See `Exchange`."""
        taken = rows.new_empty(sum(received), *rows.shape[1:])
        waiting: AbstractContextManager[None] = nullcontext() if self._line is None else self._line.exchanging()
        with waiting:
            dist.all_to_all_single(taken, rows.contiguous(), list(received), list(sent), group=self._group)
        return taken
