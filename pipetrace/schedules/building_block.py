"""Building blocks: a schedule as one microbatch's pattern, repeated and squeezed (Qi, Wan, Amar and Lin 2024, "Pipeline
Parallelism with Controllable Memory", arXiv:2405.15362).

A microbatch passes a V four times: forward down the ranks, forward up, input gradient down (through the stages of the
way up), input gradient up. A block says when each pass reaches each rank, in slots of one unit action. Repeating it
every `PERIOD` slots, the six actions of a rank a microbatch, keeps every rank busy if no two of its actions meet modulo
the period. How long an activation lives in the block, divided by the period, is what a rank holds: the offsets control
the memory.

The repetition wastes slots at both ends of the step. Squeezing keeps each rank's order of actions and runs them as soon
as their inputs are there, at the given costs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pipetrace.costs import Costs, StageCosts
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import require

PERIOD = 6
"""Slots from a microbatch to the next: F, I and W of two chunks."""


class Pass(IntEnum):
    """The four passes of a microbatch through a rank, then the weight gradients; "up" are the stages p ... 2p-1."""

    F_DOWN = 0
    F_UP = 1
    I_UP = 2
    I_DOWN = 3
    W_UP = 4
    W_DOWN = 5


FORWARDS = (Pass.F_DOWN, Pass.F_UP)
GRADIENTS = (Pass.I_UP, Pass.I_DOWN)
WEIGHTS = (Pass.W_UP, Pass.W_DOWN)


@dataclass(frozen=True, slots=True)
class Block:
    """When each pass of microbatch 0 starts on each rank, in slots.

    Args:
        starts: For each `Pass` the slot on rank 0 … p-1. Without the two of the weight gradients, the input gradients
            are full backwards of two slots.
    """

    starts: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """p."""
        return len(self.starts[0])

    @property
    def splits(self) -> bool:
        """Whether input and weight gradients are apart."""
        return len(self.starts) > len(FORWARDS + GRADIENTS)

    def slot(self, which: Pass, rank: int, microbatch: int) -> int:
        """The slot in which the repeated block starts a pass."""
        return self.starts[which][rank] + PERIOD * microbatch

    def peak(self, rank: int) -> int:
        """The most chunks of activations that a rank holds when the block repeats for ever."""
        last, slots = (WEIGHTS, 1) if self.splits else (GRADIENTS, 2)
        lives = [
            (self.starts[forward][rank], self.starts[end][rank] + slots)
            for forward, end in zip(FORWARDS, reversed(last), strict=True)
        ]
        # In slot t a chunk is held once for every microbatch i with start <= t - 6i < end.
        return max(sum((t - start) // PERIOD - (t - end) // PERIOD for start, end in lives) for t in range(PERIOD))


def split_block(ranks: int, steps: tuple[int, int, int, int], turns: tuple[int, int, int]) -> Block:
    """A block from the offsets between neighbouring ranks, weight gradients in the slots that are left.

    Args:
        ranks: p.
        steps: Slots from a rank to the next in each of the four passes.
        turns: Slots from a pass's last rank to the next pass on the same rank.
    """
    down, up = range(ranks), range(ranks - 1, -1, -1)
    starts = []
    slot = 0
    for step, turn, way in zip(steps, (*turns, 0), (down, up, down, up), strict=True):
        passed = [0] * ranks
        for place, rank in enumerate(way):
            passed[rank] = slot + step * place
        starts.append(passed)
        slot += step * (ranks - 1) + turn
    weights: tuple[list[int], list[int]] = ([], [])
    for rank in range(ranks):
        free = [slot for slot in range(PERIOD) if all((slot - passed[rank]) % PERIOD for passed in starts)]
        # Each weight gradient in the first free slot after its input gradient, the two as early as can be together.
        choices = [
            tuple(
                starts[gradient][rank] + 1 + (slot - starts[gradient][rank] - 1) % PERIOD
                for gradient, slot in zip(GRADIENTS, slots, strict=True)
            )
            for slots in (free, free[::-1])
        ]
        for weight, chosen in zip(weights, min(choices, key=lambda choice: (sum(choice), choice)), strict=True):
            weight.append(chosen)
    return Block(tuple(tuple(passed) for passed in (*starts, *weights)))


@dataclass(frozen=True, slots=True)
class Drain:
    """What changes once a rank has no forwards down left, so that the block has holes.

    Args:
        free: Whatever is ready runs, in the block's order, and weight gradients wait until nothing else is. Otherwise
            the block's order holds to the end.
        hurry_up: The gradients of the way up, which the ranks behind wait for, go before the forwards that follow
            them, and those of the way down half a period later.
    """

    free: bool = False
    hurry_up: bool = False


def squeeze(
    name: str,
    block: Block,
    microbatches: int,
    *,
    limit: int,
    memory: int | None = None,
    costs: Costs | None = None,
    drains: tuple[Drain, ...] = (Drain(),),
) -> Schedule:
    """The schedule that comes of repeating a block and squeezing it.

    Args:
        name: Of the schedule.
        block: What is repeated.
        microbatches: m.
        limit: The schedule's own limit on activations in flight on a rank, in chunks; at least the block's peak.
        memory: The user's limit, in chunks released at W (or B); at least 2. Above `limit` it changes nothing. Below,
            the block does not fit, and its order only decides between what is ready.
        costs: Where gaps lie depends on them; F = I = W = 1 and free transfers when None.
        drains: The ends to try; the one with the shortest makespan at these costs is taken, the first of equal ones.

    Raises:
        ScheduleError: The memory is less than one microbatch takes.
    """
    if memory is not None:
        require(
            memory >= 2,
            f"{name} in the memory of {memory} chunks",
            "a rank holds two chunks of each microbatch: give at least 2",
        )
        limit = min(limit, memory)
    found = [_Squeeze(block, microbatches, limit, Costs(), drain).run() for drain in drains]
    if costs is not None:
        # The repetition is laid out in unit slots. Filling the gaps that other costs open can be worse than leaving
        # them, so that the orders of unit costs stand beside those that are fitted.
        found = [_Squeeze(block, microbatches, limit, costs, Drain(), order).run() for _, order in found]
        found += [_Squeeze(block, microbatches, limit, costs, drain).run() for drain in drains]
    _, order = min(found, key=lambda result: result[0])
    orders = [_rank_order(block, rank, actions) for rank, actions in enumerate(order)]
    return Schedule.from_orders(name, Placement.v(block.ranks), microbatches, orders)


def _rank_order(block: Block, rank: int, actions: list[tuple[Pass, int]]) -> RankOrder:
    """A rank's list of actions, with stages in place of passes."""
    order = RankOrder()
    for which, i in actions:
        stage = _stage(which, rank, block.ranks)
        if which in FORWARDS:
            order.F(stage, i)
        elif which in WEIGHTS:
            order.W(stage, i)
        elif block.splits:
            order.I(stage, i)
        else:
            order.B(stage, i)
    return order


class _Squeeze:
    """One run over the step: every rank takes, whenever it is free, the next action of its list that can run."""

    def __init__(
        self,
        block: Block,
        microbatches: int,
        limit: int,
        costs: Costs,
        drain: Drain,
        order: list[list[tuple[Pass, int]]] | None = None,
    ) -> None:
        """Args: as of `squeeze`; with `order` each rank runs that and nothing else."""
        p, m = block.ranks, microbatches
        self.block, self.m, self.limit, self.drain = block, m, limit, drain
        self.tight = any(limit < block.peak(rank) for rank in range(p))
        self.passes = [Pass(which) for which in range(len(block.starts))]
        self.keys = [[self._keys(which, rank) for which in self.passes] for rank in range(p)]
        self.fixed = order is not None
        self.lists = order or [
            [
                (which, i)
                for _, which, i in sorted(
                    (key, which, i) for which in self.passes for i, key in enumerate(self.keys[rank][which])
                )
            ]
            for rank in range(p)
        ]
        self.durations = [
            [_duration(which, costs.of(_stage(which, rank, p)), block.splits) for which in self.passes]
            for rank in range(p)
        ]
        # From each rank to those beside it, in whose V the stages before and behind lie.
        beside = [(rank, there) for rank in range(p) for there in (rank - 1, rank, rank + 1) if 0 <= there < p]
        times = costs.transfer_times(*np.array(beside, dtype=np.int64).T)
        self.transfer: dict[tuple[int, int], int] = dict(zip(beside, times.tolist(), strict=True))
        # When the input of each (pass, microbatch) of a rank is there; None while that is not known.
        self.arrival: list[list[list[int | None]]] = [[[None] * m for _ in self.passes] for _ in range(p)]
        self.arrival[0][Pass.F_DOWN] = [0] * m
        self.head = [0] * p
        self.count = [[0] * len(self.passes) for _ in range(p)]
        self.held = [0] * p
        self.order: list[list[tuple[Pass, int]]] = [[] for _ in range(p)]
        # Down chunks that the block holds at most, and up chunks that the warm-up leaves room for: a rank near the turn
        # needs as many of both, a rank far from it has only the first of the way up to come before it can go on.
        self.ahead = [-((block.starts[Pass.F_DOWN][r] - block.starts[Pass.I_DOWN][r]) // PERIOD) for r in range(p)]
        self.reserve = [min(r + 1, limit // 2) for r in range(p)]

    def _keys(self, which: Pass, rank: int) -> list[int]:
        """What a rank's list is sorted by, for each microbatch of a pass: twice the slot, moved in the drain."""
        keys = [2 * self.block.slot(which, rank, i) for i in range(self.m)]
        if self.drain.hurry_up and rank < self.block.ranks - 1:
            # The last rank gives its gradients to itself, so that neither waits for the other.
            gone = 2 * self.block.slot(Pass.F_DOWN, rank, self.m)
            if which is Pass.I_UP:
                own = [2 * self.block.slot(Pass.F_UP, rank, i) for i in range(self.m)]
                keys = [max(key - 3, f + 1) if key >= gone else key for key, f in zip(keys, own, strict=True)]
            elif which is Pass.I_DOWN:
                keys = [key + PERIOD if key >= gone - 4 else key for key in keys]
        return keys

    def run(self) -> tuple[int, list[list[tuple[Pass, int]]]]:
        """The makespan in ns, and what each rank ran, in order."""
        events = [(0, rank) for rank in range(self.block.ranks)]
        free_at = [0] * self.block.ranks
        end = 0
        while events:
            now, rank = heapq.heappop(events)
            if free_at[rank] > now:
                continue
            action = self._choose(rank, now)
            if action is None:
                continue
            which, i = action
            free_at[rank] = now + self.durations[rank][which]
            end = max(end, free_at[rank])
            heapq.heappush(events, (free_at[rank], rank))
            self._note(rank, which, i)
            if follower := self._follower(which, rank):
                then, there = follower
                at = free_at[rank] + self.transfer[rank, there]
                self.arrival[there][then][i] = at
                if there != rank:
                    heapq.heappush(events, (at, there))
            if which in GRADIENTS and self.block.splits:
                self.arrival[rank][which + 2][i] = free_at[rank]
        # The block fits its own peak, and `_room` keeps every other order from deadlocking.
        assert all(len(ran) == len(listed) for ran, listed in zip(self.order, self.lists, strict=True))
        return end, self.order

    def _follower(self, which: Pass, rank: int) -> tuple[Pass, int] | None:
        """The pass and rank that an action's output goes to."""
        last = self.block.ranks - 1
        match which:
            case Pass.F_DOWN:
                return (Pass.F_DOWN, rank + 1) if rank < last else (Pass.F_UP, rank)
            case Pass.F_UP:
                return (Pass.F_UP, rank - 1) if rank else (Pass.I_UP, rank)
            case Pass.I_UP:
                return (Pass.I_UP, rank + 1) if rank < last else (Pass.I_DOWN, rank)
            case Pass.I_DOWN:
                return (Pass.I_DOWN, rank - 1) if rank else None
            case _:
                return None

    def _choose(self, rank: int, now: int) -> tuple[Pass, int] | None:
        """What a free rank runs now."""
        count, listed = self.count[rank], self.lists[rank]
        # Each pass goes through the microbatches in order, so that its count says which of the list have run.
        while self.head[rank] < len(listed) and listed[self.head[rank]][1] < count[listed[self.head[rank]][0]]:
            self.head[rank] += 1
        if self.head[rank] == len(listed):
            return None
        drained = self.drain.free and count[Pass.F_DOWN] == self.m
        if (drained or self.tight) and not self.fixed:
            ready = [
                (self.keys[rank][which][count[which]], which)
                for which in FORWARDS + GRADIENTS
                if self._ready(rank, which, now) and (which in GRADIENTS or self._room(rank, which))
            ]
            if ready:
                which = min(ready)[1]
                return which, count[which]
        else:
            which = listed[self.head[rank]][0]
            if self._ready(rank, which, now) and (which not in FORWARDS or self.held[rank] < self.limit):
                return which, count[which]
            if self.fixed:
                return None
            if count[self.warm_until] == 0 and (pulled := self._pulled(rank, now)) is not None:
                return pulled, count[pulled]
        return self._weight(rank, now)

    @property
    def warm_until(self) -> Pass:
        """The pass whose first action ends a rank's warm-up."""
        return Pass.I_UP if self.block.splits else Pass.I_DOWN

    def _ready(self, rank: int, which: Pass, now: int) -> bool:
        i = self.count[rank][which]
        at = self.arrival[rank][which][i] if i < self.m else None
        return at is not None and at <= now

    def _room(self, rank: int, which: Pass) -> bool:
        """Whether a forward finds room. A chunk of the way down leaves the last place to the way up, unless one there
        will free it: then the oldest microbatch can always go on, and no order deadlocks.
        """
        count, ends = self.count[rank], WEIGHTS if self.block.splits else GRADIENTS
        up = count[Pass.F_UP] - count[ends[0]]
        return self.held[rank] + (which is Pass.F_DOWN and not up) < self.limit

    def _pulled(self, rank: int, now: int) -> Pass | None:
        """A forward that fills the warm-up ahead of its turn, within what the block holds."""
        count = self.count[rank]
        if self._ready(rank, Pass.F_UP, now) and self.held[rank] < self.limit:
            return Pass.F_UP
        missing = max(0, self.reserve[rank] - (count[Pass.F_UP] - count[Pass.I_UP]))
        within = count[Pass.F_DOWN] - count[Pass.I_DOWN] < self.ahead[rank]
        if self._ready(rank, Pass.F_DOWN, now) and within and self.held[rank] + missing < self.limit:
            return Pass.F_DOWN
        return None

    def _weight(self, rank: int, now: int) -> tuple[Pass, int] | None:
        """The weight gradient that fills a gap: the block's next."""
        if not self.block.splits:
            return None
        ready = [(self.keys[rank][w][self.count[rank][w]], w) for w in WEIGHTS if self._ready(rank, w, now)]
        return (min(ready)[1], self.count[rank][min(ready)[1]]) if ready else None

    def _note(self, rank: int, which: Pass, i: int) -> None:
        """Appends an action to a rank's order and counts what it takes or frees."""
        self.count[rank][which] += 1
        self.order[rank].append((which, i))
        if which in FORWARDS:
            self.held[rank] += 1
        elif which in WEIGHTS or not self.block.splits:
            self.held[rank] -= 1


def _stage(which: Pass, rank: int, ranks: int) -> int:
    """The stage that a pass is through on a rank."""
    return 2 * ranks - 1 - rank if which in (Pass.F_UP, Pass.I_UP, Pass.W_UP) else rank


def _duration(which: Pass, costs: StageCosts, splits: bool) -> int:
    """ns of a pass through a stage."""
    if which in FORWARDS:
        return costs.F
    if which in WEIGHTS:
        return costs.W
    return costs.recompute + (costs.I if splits else costs.full_backward)
