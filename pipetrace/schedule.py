"""A schedule: for every pipeline rank an ordered list of actions.

The lists hold F, B, I and W; beside them either no communication, which is then derived, or every send and receive.
It is an order, not a time; `pipetrace.simulate` gives it times.

A schedule has one of two grains. Its actions are whole stages; or, after `pipetrace.passes.expand_moe`, the parts of
their MoE layers. Then a rank's list is the order in which it issues them, and two lanes run them: all-to-alls
(dispatch, combine) have one, the rest the other. Each lane runs its own in list order, and a row starts when its lane
is free and its input is there. A row with a fence does not start before all that stands before it in the list has
ended, on both lanes; where it and the row behind it are the first parts of a pair's two halves, not before the inputs
of both are there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pipetrace.action import (
    MAX_MICROBATCH,
    MAX_PIPE,
    MAX_STAGE,
    NO_ACTION,
    Action,
    BoolArray,
    IntArray,
    Kind,
    Pair,
    code_part,
    pack,
)
from pipetrace.chain import Chain
from pipetrace.errors import ActionError, ScheduleError
from pipetrace.links import Links, link
from pipetrace.placement import Placement
from pipetrace.shown import shown
from pipetrace.times import is_count
from pipetrace.transfers import Transfers, check_transfers, find_transfers, is_transfer, with_sends
from pipetrace.validation import validate

# While a list is built its entries are sums: an append then needs no call and no comparison, and it is the hot path
# of every builder. Fields are wider than in a code and begin in their middle, so that what is out of range, negative or
# not, is still seen when the entries become codes. An entry below zero is minus the code of an appended `Action`.
_MICROBATCH, _STAGE, _PIPE = 1 << 3, 1 << 33, 1 << 53
_FIELDS = ((3, 30, MAX_MICROBATCH), (33, 20, MAX_STAGE), (53, 9, MAX_PIPE))
"""Of microbatch, stage and pipe: the first bit, the number of bits, and the most that a code can hold."""
_ZERO = sum(1 << first + bits - 1 for first, bits, _ in _FIELDS)
_F, _B, _I, _W = (_ZERO + int(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W))


class RankOrder:
    """The list of one rank while it is being built: one call appends one action.

    The calls are named as the papers name the tiles, so that a schedule's file reads as its paper does.
    """

    __slots__ = ("_entries", "_fences", "_partners")

    def __init__(self) -> None:
        self._entries = array("q")
        self._partners: dict[int, int] = {}
        self._fences: set[int] = set()

    def F(self, stage: int, microbatch: int, pipe: int = 0) -> None:
        """Appends a forward."""
        self._entries.append(_F + stage * _STAGE + microbatch * _MICROBATCH + pipe * _PIPE)

    def B(self, stage: int, microbatch: int, pipe: int = 0) -> None:
        """Appends a full backward: input and weight gradient."""
        self._entries.append(_B + stage * _STAGE + microbatch * _MICROBATCH + pipe * _PIPE)

    def I(self, stage: int, microbatch: int, pipe: int = 0) -> None:  # noqa: E743 - the field's own letter
        """Appends an input gradient (dX)."""
        self._entries.append(_I + stage * _STAGE + microbatch * _MICROBATCH + pipe * _PIPE)

    def W(self, stage: int, microbatch: int, pipe: int = 0) -> None:
        """Appends a weight gradient (dW)."""
        self._entries.append(_W + stage * _STAGE + microbatch * _MICROBATCH + pipe * _PIPE)

    def append(self, item: Action | Pair) -> None:
        """Appends any action, or an overlapped pair as one entry."""
        if isinstance(item, Pair):
            self._partners[len(self._entries)] = item.backward.code
            item = item.forward
        self._entries.append(-item.code)

    def fence(self) -> None:
        """Keeps what comes next from starting before all that was appended so far has ended, on both lanes."""
        self._fences.add(len(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def actions(self) -> Iterator[Action | Pair]:
        """What was appended, in order.

        Raises:
            ActionError: As `columns`.
        """
        for position, code in enumerate(self._as_codes().tolist()):
            action, backward = Action.from_code(code), self._partners.get(position)
            yield action if backward is None else Pair(action, Action.from_code(backward))

    def columns(self) -> tuple[IntArray, IntArray, BoolArray]:
        """Codes, partners (`NO_ACTION` where an entry is no pair), and whether a fence stands before each.

        Raises:
            ActionError: A stage, microbatch or pipe is out of range; with its place in the list.
        """
        code = self._as_codes()
        partner = np.full(code.size, NO_ACTION, dtype=np.int64)
        for position, backward in self._partners.items():
            partner[position] = backward
        fence = np.zeros(code.size + 1, dtype=np.bool_)
        fence[list(self._fences)] = True
        return code, partner, fence[:-1]

    def _as_codes(self) -> IntArray:
        entries = np.array(self._entries, dtype=np.int64)
        kind = entries & (1 << 3) - 1
        fields = [(entries >> first & (1 << bits) - 1) - (1 << bits - 1) for first, bits, _ in _FIELDS]
        microbatch, stage, pipe = fields
        plain = entries >= 0
        for field, (_, _, most) in zip(fields, _FIELDS, strict=True):
            # Without a sign, what is below zero is far above the most.
            strays = plain & (field.view(np.uint64) > most)
            if strays.any():
                at = int(np.argmax(strays))
                try:
                    Action(Kind(int(kind[at])), int(stage[at]), int(microbatch[at]), int(pipe[at]))
                except ActionError as error:
                    raise ActionError(f"entry {at} of its list: {error.message}", error.hint) from None
        codes = pack(0, stage, microbatch) + kind + pipe * (pack(0, 0, 0, 1) - pack(0, 0, 0))
        return np.where(plain, codes, -entries)


@dataclass(frozen=True, eq=False)
class Schedule:
    """An ordered list of actions for every rank.

    Args:
        name: What it is called, e.g. "zb-h1".
        placement: Which rank holds which stage.
        microbatches: m of one step, over all pipes.
        code: The actions' codes, rank after rank in list order; shape (n,).
        partner: The backward half of each overlapped pair, `NO_ACTION` elsewhere; shape (n,).
        first: Row at which each rank's list begins, and n at the end; shape (ranks + 1,).
        fence: Before which rows a fence stands; shape (n,). None where actions are whole stages, which run one after
            the other anyway.

    Raises:
        ScheduleError: The columns do not go together; what they hold, `validate` looks at.
    """

    name: str
    placement: Placement
    microbatches: int
    code: IntArray
    partner: IntArray
    first: IntArray
    fence: BoolArray | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.placement, Placement):
            raise ScheduleError(f"the placement of a schedule is {shown(self.placement)}", "give a Placement")
        if not is_count(self.microbatches, MAX_MICROBATCH):
            raise ScheduleError(f"a schedule of {shown(self.microbatches)} microbatches")
        n, ranks = np.size(self.code), self.placement.ranks
        for name, size, kind in (
            ("code", n, np.int64),
            ("partner", n, np.int64),
            ("first", ranks + 1, np.int64),
            ("fence", n, np.bool_),
        ):
            column = getattr(self, name)
            if column is None and name == "fence":
                continue
            if not isinstance(column, np.ndarray) or column.dtype != kind or column.shape != (size,):
                raise ScheduleError(
                    f"{name} of a schedule is {shown(column)}",
                    f"give an array of {np.dtype(kind)} and shape ({size},); Schedule.from_orders makes them all",
                )
        if self.first[0] != 0 or self.first[-1] != n or (np.diff(self.first) < 0).any():
            raise ScheduleError(
                f"first of a schedule is {shown(self.first.tolist())}, with {n} rows",
                "it begins with 0, never falls, and ends with the number of rows",
            )

    @classmethod
    def from_orders(cls, name: str, placement: Placement, microbatches: int, orders: Sequence[RankOrder]) -> Schedule:
        """The schedule of `orders`, one a rank.

        Raises:
            ScheduleError: The sizes are out of range, there is not one order a rank, or the stage, microbatch or pipe
            of an action is out of range; with its rank and place in the list.
        """
        if not 1 <= microbatches <= MAX_MICROBATCH:
            raise ScheduleError(
                f"a step of {microbatches} microbatches cannot be scheduled",
                f"give between 1 and {MAX_MICROBATCH} microbatches",
            )
        if placement.stages > MAX_STAGE:
            raise ScheduleError(f"{placement.stages} stages are more than the {MAX_STAGE} that an action can name")
        if len(orders) != placement.ranks:
            raise ScheduleError(f"{len(orders)} lists of actions for {placement.ranks} ranks")
        columns = []
        for rank, order in enumerate(orders):
            try:
                columns.append(order.columns())
            except ActionError as error:
                raise ScheduleError(f"rank {rank}: {error.message}", error.hint) from None
        first = np.zeros(placement.ranks + 1, dtype=np.int64)
        np.cumsum([len(order) for order in orders], out=first[1:])
        code, partner = (np.concatenate([column[i] for column in columns]) for i in (0, 1))
        fence = np.concatenate([column[2] for column in columns])
        return cls(name, placement, microbatches, code, partner, first, fence if code_part(code).any() else None)

    @classmethod
    def from_actions(
        cls, name: str, placement: Placement, microbatches: int, lists: Iterable[Iterable[Action | Pair]]
    ) -> Schedule:
        """The schedule of lists of actions, one a rank; see `from_orders`."""
        orders = []
        for actions in lists:
            order = RankOrder()
            for item in actions:
                order.append(item)
            orders.append(order)
        return cls.from_orders(name, placement, microbatches, orders)

    @property
    def ranks(self) -> int:
        """Pipeline ranks p."""
        return self.placement.ranks

    @property
    def stages(self) -> int:
        """Stages of the model, over all ranks (of one pipe)."""
        return self.placement.stages

    def __len__(self) -> int:
        """Rows: actions, a pair counted once."""
        return self.code.size

    @cached_property
    def rank(self) -> IntArray:
        """Rank of each row; shape (n,)."""
        return np.repeat(np.arange(self.ranks, dtype=np.int64), np.diff(self.first))

    def actions(self, rank: int) -> Iterator[Action | Pair]:
        """The list of one rank, in order."""
        for row in range(int(self.first[rank]), int(self.first[rank + 1])):
            action = Action.from_code(int(self.code[row]))
            partner = int(self.partner[row])
            yield action if partner == NO_ACTION else Pair(action, Action.from_code(partner))

    @cached_property
    def chain(self) -> Chain:
        """The places along the forward direction: the stages, or the parts of their layers.

        Raises:
            ScheduleError: As `links`.
        """
        return validate(self.code, self.partner, self.first, self.placement, self.microbatches)

    @cached_property
    def has_parts(self) -> bool:
        """Whether actions are parts of layers rather than whole stages."""
        return bool(code_part(self.code).any())

    @cached_property
    def links(self) -> Links:
        """Which row waits for which.

        Raises:
            ScheduleError: The schedule is not valid in a way that leaves an action without what it needs.
        """
        return link(self.code, self.partner, self.first, self.chain, self.microbatches)

    @cached_property
    def transfers(self) -> Transfers:
        """What travels between ranks, and where its sends and receives stand if the lists have them.

        Raises:
            ScheduleError: The schedule is not valid, its deadlocks apart.
        """
        transfers = find_transfers(self.links)
        if self.has_communication:
            check_transfers(self.links, transfers, self.stages)
        return transfers

    @cached_property
    def has_communication(self) -> bool:
        """Whether sends and receives stand in the lists; where none do, they are derived."""
        return bool(is_transfer(self.code).any())

    def compute_only(self) -> Schedule:
        """The same schedule without sends and receives in its lists; itself where there are none."""
        if not self.has_communication:
            return self
        keep = ~is_transfer(self.code)
        first = np.concatenate([[0], np.cumsum(keep)])[self.first]
        return replace(self, code=self.code[keep], partner=self.partner[keep], first=first)

    def validate(self) -> Schedule:
        """Checks that the schedule can be run, and returns it.

        Every F, and every I and W or B, stands exactly once, on the rank where the placement puts it; everything an
        action needs exists; and the lists do not wait for each other in a circle, not even if a rank ran its list one
        by one on a single lane. Where the lists have sends and
        receives, they have all of them: each SEND after what makes its data, each RECV before what takes it, and
        received in the order in which they are sent between any two ranks.

        Raises:
            ScheduleError: With rank, action and reason.
            DeadlockError: With the action at which each stuck rank waits.
        """
        links = self.links
        if self.has_communication:
            links = with_sends(links, self.transfers)
        _ = links.order
        return self

    def same_order(self, other: Schedule) -> bool:
        """Whether both have the same actions in the same order on every rank, names apart."""
        return (
            np.array_equal(self.first, other.first)
            and np.array_equal(self.code, other.code)
            and np.array_equal(self.partner, other.partner)
            and np.array_equal(self.fences, other.fences)
        )

    @property
    def fences(self) -> BoolArray:
        """`fence`, with none for whole stages; shape (n,)."""
        return np.zeros(len(self), dtype=np.bool_) if self.fence is None else self.fence
