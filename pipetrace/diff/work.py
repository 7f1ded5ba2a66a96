"""What two steps of one schedule have in common: their rows, and what travels between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipetrace.action import (
    COMPUTE_KINDS,
    NO_ACTION,
    BoolArray,
    IntArray,
    Kind,
    code_kind,
    code_pipe,
    code_stage,
    is_all_to_all,
)
from pipetrace.costs import Costs
from pipetrace.diff.part_lanes import between_lanes
from pipetrace.diff.replay import NEVER, Graph, Inputs
from pipetrace.links import NO_ROW
from pipetrace.metrics.chunks import halves
from pipetrace.metrics.tiles import Lookup, is_kind
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Lane, Timeline


def does_work(timeline: Timeline) -> BoolArray:
    """Which tiles are an F, B, I or W or a part of one, on the compute or the all-to-all lane; shape (n,)."""
    works: BoolArray = is_kind(timeline.code, *COMPUTE_KINDS) & (timeline.lane <= Lane.ALL_TO_ALL)
    return works


@dataclass(frozen=True, eq=False)
class Work:
    """The rows of a schedule, and below them what was measured without being in it; n rows and k transfers.

    Args:
        schedule: Without sends and receives in its lists.
        code, partner, rank: Of each row; shape (n,).
        scheduled: How many rows are the schedule's.
        producer, consumer: Rows at the ends of each transfer between ranks; shape (k,).
        send, receive: Codes of its ends.
        sender, receiver: Ranks.
    """

    schedule: Schedule
    code: IntArray
    partner: IntArray
    rank: IntArray
    scheduled: int
    producer: IntArray
    consumer: IntArray
    send: IntArray
    receive: IntArray
    sender: IntArray
    receiver: IntArray

    @classmethod
    def of(cls, schedule: Schedule, timelines: Sequence[Timeline]) -> Work:
        """The rows of a schedule and of what else stands in the first replica of some timelines.

        Raises:
            ScheduleError: The schedule is not valid.
        """
        schedule = schedule.compute_only()
        transfers = schedule.transfers
        known = np.concatenate([schedule.code, schedule.partner[schedule.partner != NO_ACTION]])
        code, partner, rank = [schedule.code], [schedule.partner], [schedule.links.rank]
        for timeline in timelines:
            tiles = timeline.where(does_work(timeline) & (timeline.replica == 0))
            codes, rows = halves(tiles)
            other = np.setdiff1d(np.arange(len(tiles)), rows[np.isin(codes, known)])
            for column, name in ((code, "code"), (partner, "partner"), (rank, "rank")):
                column.append(getattr(tiles, name)[other])
            known = np.concatenate([known, tiles.code[other], tiles.partner[other][tiles.partner[other] != NO_ACTION]])
        return cls(
            schedule,
            np.concatenate(code),
            np.concatenate(partner),
            np.concatenate(rank),
            len(schedule),
            transfers.producer,
            transfers.consumer,
            transfers.send,
            transfers.receive,
            transfers.sender,
            transfers.receiver,
        )

    def __len__(self) -> int:
        return self.code.size

    @cached_property
    def graph(self) -> Graph:
        """The rows in the schedule's order; what is not in it comes last."""
        return self.ordered(np.arange(len(self), dtype=np.int64))

    def ordered(self, position: IntArray) -> Graph:
        """The rows in another order on each lane."""
        lane = self.rank if not self.schedule.has_parts else 2 * self.rank + self.travels
        also, shared = self._lanes
        return Graph(lane, position, self.producer, self.consumer, also, shared, ~self.travels)

    @cached_property
    def _lanes(self) -> tuple[IntArray, IntArray]:
        if not self.schedule.has_parts:
            return np.zeros((0, len(self)), dtype=np.int64), np.zeros((2, 0), dtype=np.int64)
        return between_lanes(self.schedule, len(self), self.consumer)

    @cached_property
    def travels(self) -> BoolArray:
        """Which rows are all-to-alls, on a lane of their own; shape (n,)."""
        travels: BoolArray = is_all_to_all(self.code)
        return travels

    @property
    def compute_lane(self) -> IntArray:
        """The number of each rank's compute lane; shape (ranks,)."""
        ranks = np.arange(self.schedule.ranks, dtype=np.int64)
        return 2 * ranks if self.schedule.has_parts else ranks

    @cached_property
    def in_schedule(self) -> BoolArray:
        """Which rows are the schedule's; shape (n,)."""
        return np.arange(len(self)) < self.scheduled

    @cached_property
    def stage(self) -> IntArray:
        """Of each row, a pair's its forward's; shape (n,)."""
        return code_stage(self.code)

    @cached_property
    def pipe(self) -> IntArray:
        """Of each row, a pair's its forward's; shape (n,)."""
        return code_pipe(self.code)

    @cached_property
    def kind(self) -> IntArray:
        """A `Kind` of each row, 0 of a pair; shape (n,)."""
        kind: IntArray = np.where(self.partner != NO_ACTION, 0, code_kind(self.code))
        return kind

    @cached_property
    def is_gradient(self) -> BoolArray:
        """Which transfers carry a gradient; shape (k,)."""
        gradient: BoolArray = code_kind(self.receive) == Kind.RECV_B
        return gradient

    @cached_property
    def link(self) -> IntArray:
        """A number for the two ranks of each transfer, this way; shape (k,)."""
        return self.sender * self.schedule.ranks + self.receiver

    def at(self, costs: Costs) -> Inputs:
        """What a replay is fed to give the ideal at some costs.

        Raises:
            CostError: Costs are given for a stage that the schedule does not have.
        """
        n, k, of = len(self), self.producer.size, self.schedule
        duration = np.zeros(n, dtype=np.int64)
        duration[: self.scheduled] = costs.durations(of)
        forward, backward = costs.ready(of, duration[: self.scheduled])
        return Inputs(
            duration=duration,
            gap=np.zeros(n, dtype=np.int64),
            ready=np.where(self.is_gradient, backward[self.producer], forward[self.producer]),
            delay=np.zeros(k, dtype=np.int64),
            anchor=np.full(k, NO_ROW, dtype=np.int64),
            after=np.full(k, NEVER, dtype=np.int64),
            time=costs.transfer_times(self.sender, self.receiver),
            present=self.in_schedule,
        )

    @cached_property
    def rows_of(self) -> Lookup:
        """Finds the row of an action, alone or as half of a pair."""
        rows = np.arange(len(self), dtype=np.int64)
        paired = self.partner != NO_ACTION
        return Lookup(np.concatenate([self.code, self.partner[paired]]), np.concatenate([rows, rows[paired]]))

    def sides(self, timeline: Timeline, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
        """When each transfer was received and when it was sent, by each rank's own clock; two arrays of shape (k,).

        Args:
            timeline: Where they are looked up; replica 0 is taken.
            start, end: Of each row in it, for what was not recorded: an output leaves with the end of what makes it (a
                pair's with its start, as it can leave before its end), and has come by the start of what uses it.
        """
        others = timeline.where(~does_work(timeline) & (timeline.replica == 0))
        at = Lookup(others.code, np.arange(len(others), dtype=np.int64))
        posted = np.append(others.posted, UNKNOWN)[at.find(self.send)]
        ends = np.append(others.end, UNKNOWN)[at.find(self.receive)]
        left = np.where(self.partner[self.producer] != NO_ACTION, start[self.producer], end[self.producer])
        sent = np.where(posted != UNKNOWN, posted, left)
        return np.where(ends != UNKNOWN, ends, start[self.consumer]), sent
