"""How a rank waits for what it receives; the same words in simulator and executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipetrace.errors import CostError
from pipetrace.times import MAX_COST


class Wait(StrEnum):
    """When receives are posted, and what waits for them."""

    INLINE = "inline"
    """A receive is posted and waited for at its use: the lane is held, and the transfer starts late."""
    PREFETCH = "prefetch"
    """All receives are posted ahead in list order; the list order is kept."""
    DATAFLOW = "dataflow"
    """A rank may run the first ready action of its list out of order, within a memory cap."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How ranks wait, and what waiting costs.

    Args:
        policy: See `Wait`.
        reorder: Whether `dataflow` may leave the list order; without it equals list order.
        caps: Most activations in flight on each rank that `dataflow` may reach, freed at W, in chunks; None for the
            peak of the list order.
        ordered: Whether the transfers of a pair of ranks, both ways, share one channel and run in the order in which
            they were posted, as on NCCL's one stream a pair.
        post: ns of the compute lane for each posting of a send or receive.
        spin: By how much compute is slowed while a posted receive spins: 0.1 makes it take a tenth longer.

    Raises:
        CostError: A cost is negative.
    """

    policy: Wait = Wait.PREFETCH
    reorder: bool = True
    caps: Sequence[int] | None = None
    ordered: bool = False
    post: int = 0
    spin: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.post <= MAX_COST:
            raise CostError(f"posting a transfer costs {self.post} ns", "give a time between 0 and 1000 s")
        if not 0 <= self.spin <= 100:
            raise CostError(f"a spinning receive slows compute by {self.spin}", "give a share from 0 on, e.g. 0.1")
