"""How a rank waits for what it receives; the same words in simulator and executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipetrace.errors import CostError
from pipetrace.shown import shown
from pipetrace.times import MAX_COST, is_count


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
        policy: See `Wait`; its text will do.
        reorder: Whether `dataflow` may leave the list order; without it equals list order.
        caps: Most activations in flight on each rank that `dataflow` may reach, freed at W, in chunks; at least the
            peak of the list order, which it is when None.
        ordered: Whether the transfers of a pair of ranks, both ways, share one channel and run in the order in which
            they were posted, as on NCCL's one stream a pair.
        post: ns of the compute lane for each posting of a send or receive.
        spin: By how much compute is slowed while a posted receive spins: 0.1 makes it take a tenth longer.

    Raises:
        CostError: A cost is negative, or something is of the wrong type.
    """

    policy: Wait = Wait.PREFETCH
    reorder: bool = True
    caps: Sequence[int] | None = None
    ordered: bool = False
    post: int = 0
    spin: float = 0.0

    @property
    def reorders(self) -> bool:
        """Whether a rank may leave the list order."""
        return self.policy is Wait.DATAFLOW and self.reorder

    def __post_init__(self) -> None:
        if self.policy not in tuple(Wait):
            raise CostError(f"unknown way of waiting {shown(self.policy)}", f"they are {', '.join(Wait)}")
        object.__setattr__(self, "policy", Wait(self.policy))  # everything else compares with `is`
        for name in ("reorder", "ordered"):
            if not isinstance(getattr(self, name), bool):
                raise CostError(f"{name} of the way of waiting is {shown(getattr(self, name))}", "it is true or false")
        if self.caps is not None:
            if not isinstance(self.caps, Sequence) or not all(is_count(cap) for cap in self.caps):
                raise CostError(f"caps of the way of waiting are {shown(self.caps)}", "give a list: one count a rank")
            object.__setattr__(self, "caps", tuple(map(int, self.caps)))
        if not is_count(self.post, MAX_COST):
            raise CostError(f"posting a transfer costs {shown(self.post)} ns", "give a time between 0 and 1000 s")
        if isinstance(self.spin, bool) or not isinstance(self.spin, int | float) or not 0 <= self.spin <= 100:
            raise CostError(
                f"a spinning receive slows compute by {shown(self.spin)}", "give a share from 0 on, e.g. 0.1"
            )


def waiting_to_dict(waiting: Waiting) -> dict[str, Any]:
    """What a run records of how its ranks wait: the policy, and what of dataflow is not as ever."""
    table: dict[str, Any] = {"wait": str(waiting.policy)}
    if waiting.policy is Wait.DATAFLOW and not waiting.reorder:
        table["reorder"] = False
    if waiting.caps is not None:
        table["caps"] = list(waiting.caps)
    return table


def waiting_from_dict(table: Mapping[str, Any]) -> Waiting:
    """The other way round; entries that are not there are as in `Waiting`, others are not looked at.

    Raises:
        CostError: An entry cannot be understood.
    """
    return Waiting(table.get("wait", Wait.PREFETCH), reorder=table.get("reorder", True), caps=table.get("caps"))
