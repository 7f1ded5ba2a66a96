"""A step played again with other figures: each row's own duration and gap, each transfer's own time and posts.

`pipetrace.simulate` asks what a schedule would take at given costs. Here the question is what a step *that was
measured* would have taken had one thing been otherwise, so every row and every transfer has its own figures, and many
such steps are played at once. Rows are visited level by level of the graph; a level of all steps is one numpy
operation, so that some hundred replays of 100,000 actions take a second or two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipetrace.action import BoolArray, IntArray
from pipetrace.errors import DeadlockError
from pipetrace.links import NO_ROW

NEVER = -(1 << 60)
"""Stands for a time so long ago that nothing waits for it."""

_MOST_CELLS = 4_000_000  # of one array of a batch of replays


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a replay is fed, all in ns.

    Args:
        duration: Of each row; shape (n,).
        gap: From when all that a row needs was there to its start; shape (n,).
        ready: From the start of each transfer's producer to when its output can leave; shape (k,).
        delay: From then to the posting of the send; shape (k,).
        anchor: Row of the receiver's rank after whose end the receive was posted, `NO_ROW` for the step's start;
            shape (k,).
        after: From that row's end to the posting of the receive; `NEVER` where it was posted ahead; shape (k,).
        time: From when both sides had posted to the arrival; `NEVER` where nothing is known to be waited for;
            shape (k,).
        present: Rows that are in the step at all; shape (n,).
    """

    duration: IntArray
    gap: IntArray
    ready: IntArray
    delay: IntArray
    anchor: IntArray
    after: IntArray
    time: IntArray
    present: BoolArray

    def but(self, **columns: IntArray | BoolArray) -> Inputs:
        """The same with other columns."""
        return replace(self, **columns)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Graph:
    """What waits for what, and in which order each lane runs: n rows and k transfers.

    Args:
        lane: What runs one row at a time, a number from 0 for each rank (and lane); shape (n,).
        position: Place of each row in its lane's order; shape (n,).
        producer, consumer: Rows at the two ends of each transfer; shape (k,).
        also: Rows on other lanes of its rank that each row waits for to end, n where there is none; shape (width, n).
        shared: Transfers and rows, of shape (2, pairs), that wait for them beside their consumer.
        counts: Rows of which the makespan is, all when None: all-to-alls are not.
    """

    lane: IntArray
    position: IntArray
    producer: IntArray
    consumer: IntArray
    also: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    shared: IntArray = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    counts: BoolArray | None = None

    @cached_property
    def previous(self) -> IntArray:
        """The row before each on its lane, n for the first; shape (n,)."""
        n = self.lane.size
        order = np.lexsort((self.position, self.lane))
        before = np.concatenate([[n], order[:-1]]) if n else order
        lane = self.lane[order]
        before[np.flatnonzero(np.concatenate([[True], lane[1:] != lane[:-1]])[:n])] = n
        previous = np.empty(n, dtype=np.int64)
        previous[order] = before
        return previous

    @cached_property
    def needs(self) -> IntArray:
        """The transfers into each row, k where there is none; shape (most that a row needs, n)."""
        n, k = self.lane.size, self.consumer.size
        transfer = np.concatenate([np.arange(k), self.shared[0]])
        row = np.concatenate([self.consumer, self.shared[1]])
        count = np.bincount(row, minlength=n)
        table = np.full((int(count.max(initial=0)), n), k, dtype=np.int64)
        order = np.argsort(row, kind="stable")
        first = np.cumsum(count) - count
        table[np.arange(row.size) - first[row[order]], row[order]] = transfer[order]
        return table

    def needed(self, there: IntArray, end: IntArray) -> IntArray:
        """When all that each row waits for beside its lane is there; shape (n,).

        Args:
            there: When each transfer arrived; shape (k,).
            end: Of each row; shape (n,).
        """
        latest: IntArray = np.append(there, NEVER)[self.needs].max(axis=0, initial=NEVER)
        for column in self.also:
            latest = np.maximum(latest, np.append(end, NEVER)[column])
        return latest

    @cached_property
    def levels(self) -> IntArray:
        """For each row the most rows that come before it on one path; shape (n,).

        Raises:
            DeadlockError: The lanes wait for each other in a circle.
        """
        n = self.lane.size
        producers = np.concatenate([self.producer, [n]])[self.needs]
        columns = [self.previous, *producers, *self.also]
        sources = [column.tolist() for column in columns]
        waits = np.zeros(n, dtype=np.int64)
        for column in columns:
            waits += column < n
        followers: list[list[int]] = [[] for _ in range(n + 1)]
        for column_of in sources:
            for row, source in enumerate(column_of):
                followers[source].append(row)
        missing, level = waits.tolist(), [0] * n
        queue = [row for row in range(n) if not missing[row]]
        for row in queue:
            above = level[row] + 1
            for follower in followers[row]:
                level[follower] = max(level[follower], above)
                missing[follower] -= 1
                if not missing[follower]:
                    queue.append(follower)
        if len(queue) < n:
            raise DeadlockError("the lists wait for each other in a circle")
        return np.array(level, dtype=np.int64)

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan.of(self)

    def play(self, steps: Sequence[Inputs]) -> Iterator[tuple[IntArray, IntArray]]:
        """Start and end of every row of each step, two arrays of shape (n,) in ns."""
        batch = max(1, min(64, _MOST_CELLS // max(1, self.lane.size)))
        for begin in range(0, len(steps), batch):
            yield from self._plan.play(self, steps[begin : begin + batch])

    def makespans(self, steps: Sequence[Inputs]) -> list[int]:
        """ns from the first start to the last end of the rows that are present, for each step."""
        played = zip(steps, self.play(steps), strict=True)
        return [self.makespan_of(start, end, step.present) for step, (start, end) in played]

    def makespan_of(self, start: IntArray, end: IntArray, present: BoolArray) -> int:
        """ns from the first start to the last end of those of some rows that count; 0 where there are none."""
        which = present if self.counts is None else present & self.counts
        return int(end[which].max() - start[which].min()) if which.any() else 0


@dataclass(frozen=True, eq=False)
class _Plan:
    """A graph with its rows in order of level, so that a level is a slice.

    Args:
        order: Rows in that order; shape (n,).
        place: Where each row stands, and n; shape (n + 1,).
        previous: Place of the row before; shape (n,).
        needs: Transfers into each; shape (width, n).
        bounds: Place at which each level begins, and n at the end.
        used: For each level how many of the rows of `needs` hold a transfer.
    """

    order: IntArray
    place: IntArray
    previous: IntArray
    needs: IntArray
    bounds: list[int]
    used: list[int]

    @classmethod
    def of(cls, graph: Graph) -> _Plan:
        levels, n, k = graph.levels, graph.lane.size, graph.consumer.size
        order = np.argsort(levels, kind="stable")
        place = np.empty(n + 1, dtype=np.int64)
        place[order], place[n] = np.arange(n), n
        bounds = np.searchsorted(levels[order], np.arange(int(levels.max(initial=-1)) + 2))
        needs = graph.needs[:, order]
        count = (needs < k).sum(axis=0) if needs.size else np.zeros(n, dtype=np.int64)
        used = np.maximum.reduceat(count, bounds[:-1]).tolist() if n else []
        return cls(order, place, place[graph.previous[order]], needs, bounds.tolist(), used)

    def play(self, graph: Graph, steps: Sequence[Inputs]) -> Iterator[tuple[IntArray, IntArray]]:
        n, width = self.order.size, len(self.needs)
        duration, gap = (
            np.stack([column[self.order] for column in columns], axis=1)
            for columns in ([step.duration for step in steps], [step.gap for step in steps])
        )
        leaves = np.stack([step.ready + step.delay for step in steps], axis=1)
        time = np.stack([step.time for step in steps], axis=1)
        posts = [_posts(graph, step) for step in steps]
        anchor, after = (np.stack(columns, axis=1) for columns in zip(*posts, strict=True))
        anchored = bool((after > NEVER).any())
        source = self.place[np.concatenate([graph.producer, [n]])[self.needs]]
        leaves, time, anchor, after = (
            np.concatenate([table, np.full((1, len(steps)), fill, dtype=np.int64)])[self.needs]
            for table, fill in ((leaves, 0), (time, NEVER), (anchor, n), (after, NEVER))
        )
        anchor = self.place[anchor]
        column = np.arange(len(steps))
        also = [self.place[of[self.order]] for of in graph.also]
        start, end = (np.zeros((n + 1, len(steps)), dtype=np.int64) for _ in range(2))
        for level, used in enumerate(self.used):
            at = slice(self.bounds[level], self.bounds[level + 1])
            begins = end[self.previous[at]]
            for i in range(min(used, width)):
                there = start[source[i, at]] + leaves[i, at]
                if anchored:
                    np.maximum(there, end[anchor[i, at], column] + after[i, at], out=there)
                there += time[i, at]
                np.maximum(begins, there, out=begins)
            for column_of in also:
                np.maximum(begins, end[column_of[at]], out=begins)
            begins += gap[at]
            start[at] = begins
            np.add(begins, duration[at], out=end[at])
        place = self.place[:-1]
        for i in range(len(steps)):
            yield start[place, i], end[place, i]


def _posts(graph: Graph, step: Inputs) -> tuple[IntArray, IntArray]:
    """Anchors (n for the step's start) and times after them; one after its own use is drawn before it."""
    n = graph.lane.size
    anchor, after = np.where(step.anchor == NO_ROW, n, step.anchor), step.after.copy()
    position = np.concatenate([graph.position, [-1]])
    late = position[anchor] >= graph.position[graph.consumer]
    # Behind what ran on another lane: there is no telling in which order the two were.
    apart = (after > NEVER) & (np.append(graph.lane, -1)[anchor] != graph.lane[graph.consumer]) & (anchor < n)
    after[apart] = NEVER
    anchor[late] = graph.previous[graph.consumer[late]]
    after[late & (after > NEVER)] = 0
    return anchor, after


def arrivals(inputs: Inputs, graph: Graph, start: IntArray, end: IntArray) -> IntArray:
    """When each transfer arrived in a step whose starts and ends are known; shape (k,)."""
    anchored, after = _posts(graph, inputs)
    ends = np.append(end, 0)
    left = start[graph.producer] + inputs.ready + inputs.delay
    there: npt.NDArray[np.int64] = np.maximum(left, ends[anchored] + after) + inputs.time
    return there
