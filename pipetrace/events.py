"""A step played event by event, for ways of waiting that a longest path cannot tell.

Each rank walks through a program of posts and actions; a transfer between ranks starts when both sides have posted it.
Everything happens at integer nanoseconds, in order of time, and at one time in order of cause.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipetrace.action import IntArray, code_text
from pipetrace.errors import DeadlockError
from pipetrace.links import Links
from pipetrace.ready import NOTHING, ReadyList, local_edges
from pipetrace.transfers import Transfers
from pipetrace.waiting import Waiting

NOT_YET = -1
RUN, SEND, RECV = 0, 1, 2
_THINGS_HAPPEN, _RANKS_GO_ON = 0, 1  # at one time all that happens comes before a rank chooses what to do


@dataclass(frozen=True, slots=True)
class Program:
    """What one rank does.

    Args:
        actions: Its actions, in list order, as a step begins.
        steps: What it does in order: (RUN, -1) for its next action, (SEND, transfer) and (RECV, transfer) for posts.
    """

    actions: ReadyList
    steps: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """When everything happened, in ns: rows of shape (n,), transfers of shape (k,).

    Args:
        start, end: Of each row.
        idle_since: Since when the rank's lane had been free when a row started.
        sent, received: When each transfer was posted on either side.
        began, arrived: When it started and ended.
    """

    start: IntArray
    end: IntArray
    idle_since: IntArray
    sent: IntArray
    received: IntArray
    began: IntArray
    arrived: IntArray


@dataclass(slots=True)
class _Rank:
    actions: ReadyList
    steps: deque[tuple[int, int]]
    waiting: bool = False
    idle_since: int = 0
    spinning: int = 0
    # The action that runs: how much of its work was left when, and at how much left which outputs leave.
    row: int = NOT_YET
    left: int = 0
    since: int = 0
    outputs: deque[tuple[int, list[int]]] = field(default_factory=deque)
    version: int = 0  # a change of speed voids the event that was scheduled at the old speed


@dataclass(slots=True)
class _Channel:
    """A pair of ranks that share one stream: each side's posted transfers in order."""

    queues: dict[int, deque[int]]
    busy: bool = False


class StepPlayer:
    """Plays one step.

    Args:
        links: What waits for what.
        duration: ns of each row; shape (n,).
        transfers: Between the ranks; k of them.
        ready: ns of work from each transfer's producer's start until it can leave; shape (k,).
        time: ns from each transfer's start to its arrival; shape (k,).
        programs: One a rank.
        sends_itself: Whether a rank posts the sends of an action when its outputs are ready; otherwise its program has
            them.
        waiting: How ranks wait.
    """

    def __init__(
        self,
        links: Links,
        duration: IntArray,
        transfers: Transfers,
        ready: IntArray,
        time: IntArray,
        programs: Sequence[Program],
        *,
        sends_itself: bool,
        waiting: Waiting,
    ) -> None:
        n, k = duration.size, len(transfers)
        self.links, self.waiting = links, waiting
        self.send, self.receive = transfers.send.tolist(), transfers.receive.tolist()
        self.sender, self.receiver, self.time = transfers.sender.tolist(), transfers.receiver.tolist(), time.tolist()
        self.duration = duration.tolist()
        self.before, self.after = local_edges(links)
        self.rank_of = links.rank.tolist()
        self.needs: list[list[int]] = [[] for _ in range(n)]
        self.outputs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self.consumer = transfers.consumer.tolist()
        ends = zip(transfers.producer.tolist(), self.consumer, ready.tolist(), strict=True)
        for t, (producer, consumer, after) in enumerate(ends):
            self.needs[consumer].append(t)
            if sends_itself:
                self.outputs[producer].append((after, t))
        self.ranks = [_Rank(program.actions, deque(program.steps)) for program in programs]
        self.missing = [len(needs) + len(before) for needs, before in zip(self.needs, self.before, strict=True)]
        for program in programs:
            for row in program.actions.rows:
                if not self.missing[row]:
                    program.actions.add(row)
        self.channels: dict[tuple[int, int], _Channel] = {}
        self.start, self.end, self.idle_since = ([NOT_YET] * n for _ in range(3))
        self.sent, self.received, self.began, self.arrived = ([NOT_YET] * k for _ in range(4))
        self.now = self.scheduled = 0
        self.events: list[tuple[int, int, int, Callable[..., None], tuple[int, ...]]] = []

    def play(self) -> Played:
        """Plays the step to its end.

        Raises:
            DeadlockError: The ranks wait for each other.
        """
        for rank in range(len(self.ranks)):
            self._at(0, _RANKS_GO_ON, self._go_on, rank)
        while self.events:
            self.now, _, _, call, arguments = heapq.heappop(self.events)
            call(*arguments)
        stuck = [rank for rank, state in enumerate(self.ranks) if state.actions.rows]
        if stuck:
            raise self._deadlock(stuck)
        columns = (self.start, self.end, self.idle_since, self.sent, self.received, self.began, self.arrived)
        return Played(*(np.array(column, dtype=np.int64) for column in columns))

    def _at(self, time: int, phase: int, call: Callable[..., None], *arguments: int) -> None:
        self.scheduled += 1
        heapq.heappush(self.events, (time, phase, self.scheduled, call, arguments))

    # A rank's program

    def _go_on(self, rank: int) -> None:
        """Goes on with a rank's program up to its next action, or until it has to wait."""
        state = self.ranks[rank]
        while state.steps:
            what, transfer = state.steps[0]
            if what == RUN:
                row = state.actions.choose()
                if row == NOTHING:
                    state.waiting = True
                else:
                    state.steps.popleft()
                    self._start(rank, row)
                return
            state.steps.popleft()
            if self.waiting.post:
                self._at(self.now + self.waiting.post, _THINGS_HAPPEN, self._post_and_go_on, rank, what, transfer)
                return
            self._post(what, transfer)

    def _post_and_go_on(self, rank: int, what: int, transfer: int) -> None:
        self._post(what, transfer)
        self.ranks[rank].idle_since = self.now
        self._go_on(rank)

    def _has(self, row: int) -> None:
        """One more thing that a row needs is there."""
        self.missing[row] -= 1
        if not self.missing[row]:
            self.ranks[self.rank_of[row]].actions.add(row)

    # An action

    def _start(self, rank: int, row: int) -> None:
        state = self.ranks[rank]
        state.actions.start(row)
        self.start[row], self.idle_since[row] = self.now, state.idle_since
        state.row, state.left, state.since = row, self.duration[row], self.now
        # An overlapped pair's outputs can leave before its end; what is ready at the end is posted after it.
        early: dict[int, list[int]] = {}
        for ready, t in reversed(self.outputs[row]):
            if ready < self.duration[row]:
                early.setdefault(self.duration[row] - ready, []).append(t)
            else:
                state.steps.appendleft((SEND, t))
        state.outputs = deque(sorted(early.items(), reverse=True))
        self._schedule(rank)

    def _schedule(self, rank: int) -> None:
        """Schedules what the running action reaches next: an output, or its end."""
        state = self.ranks[rank]
        until = state.outputs[0][0] if state.outputs else 0
        work = state.left - until
        takes = -int(-work * (1 + self.waiting.spin) // 1) if self._is_slowed(state) else work
        state.version += 1
        self._at(self.now + takes, _THINGS_HAPPEN, self._reach, rank, state.version)

    def _is_slowed(self, state: _Rank) -> bool:
        return bool(self.waiting.spin) and state.spinning > 0

    def _reach(self, rank: int, version: int) -> None:
        state = self.ranks[rank]
        if version != state.version:
            return
        state.since = self.now
        if state.outputs:
            state.left, leave = state.outputs.popleft()
            for t in leave:
                self._at(self.now + self.waiting.post, _THINGS_HAPPEN, self._post, SEND, t)
            self._schedule(rank)
            return
        row, state.row, state.left = state.row, NOT_YET, 0
        self.end[row] = state.idle_since = self.now
        state.actions.end(row)
        for consumer in self.after[row]:
            self._has(consumer)
        self._at(self.now, _RANKS_GO_ON, self._go_on, rank)

    def _spin(self, rank: int, change: int) -> None:
        """A receive begins or ends to spin beside what the rank computes."""
        state = self.ranks[rank]
        if not self.waiting.spin:
            return
        was_slowed = self._is_slowed(state)
        state.spinning += change
        if state.row != NOT_YET and was_slowed != self._is_slowed(state):
            passed = self.now - state.since
            state.left -= int(passed / (1 + self.waiting.spin)) if was_slowed else passed
            state.left = max(state.left, state.outputs[0][0] if state.outputs else 0)
            state.since = self.now
            self._schedule(rank)

    # A transfer

    def _post(self, what: int, t: int) -> None:
        sender, receiver = self.sender[t], self.receiver[t]
        (self.sent if what == SEND else self.received)[t] = self.now
        if not self.waiting.ordered:
            if what == RECV:
                self._spin(receiver, 1)
            if self.sent[t] != NOT_YET and self.received[t] != NOT_YET:
                self._begin(t)
            return
        channel = self.channels.setdefault(self._pair(t), _Channel({sender: deque(), receiver: deque()}))
        queue = channel.queues[sender if what == SEND else receiver]
        queue.append(t)
        if len(queue) == 1 and what == RECV:
            self._spin(receiver, 1)
        self._pump(channel)

    def _pair(self, t: int) -> tuple[int, int]:
        """The two ranks of a transfer, the lower first."""
        return min(self.sender[t], self.receiver[t]), max(self.sender[t], self.receiver[t])

    def _pump(self, channel: _Channel) -> None:
        one, other = channel.queues.values()
        if not channel.busy and one and other and one[0] == other[0]:
            channel.busy = True
            self._begin(one[0])

    def _begin(self, t: int) -> None:
        self.began[t] = self.now
        self._at(self.now + self.time[t], _THINGS_HAPPEN, self._arrive, t)

    def _arrive(self, t: int) -> None:
        receiver = self.receiver[t]
        self.arrived[t] = self.now
        self._has(self.consumer[t])
        self._spin(receiver, -1)
        if self.waiting.ordered:
            channel = self.channels[self._pair(t)]
            channel.busy = False
            for rank, queue in channel.queues.items():
                queue.popleft()
                if queue and self.receiver[queue[0]] == rank:
                    self._spin(rank, 1)
            self._pump(channel)
        state = self.ranks[receiver]
        if state.waiting:
            state.waiting = False
            self._at(self.now, _RANKS_GO_ON, self._go_on, receiver)

    # When nothing happens any more

    def _deadlock(self, stuck: Sequence[int]) -> DeadlockError:
        lines = []
        for rank in stuck[:8]:
            row = self.ranks[rank].actions.rows[0]
            what = f"rank {rank} at {self.links.text(row)} waits for "
            missing = [t for t in self.needs[row] if self.arrived[t] == NOT_YET]
            if missing:
                lines.append(what + self._why(missing[0]))
            else:
                producer = next(p for p in self.before[row] if self.end[p] == NOT_YET)
                lines.append(what + self.links.text(producer))
        more = f"; and {len(stuck) - 8} more ranks" if len(stuck) > 8 else ""
        hint = "move the awaited action before the one that stands in its way"
        if self.waiting.ordered:
            hint = "post both sides' transfers in one order, or give each its own channel (--channel tagged)"
        return DeadlockError("deadlock: " + "; ".join(lines) + more, hint)

    def _why(self, t: int) -> str:
        """Names an awaited transfer, and what stands before it in its channel."""
        text = f"{code_text(self.receive[t])} from rank {self.sender[t]}"
        for rank, posted in ((self.sender[t], self.sent), (self.receiver[t], self.received)):
            if posted[t] == NOT_YET:
                return f"{text}, not posted on rank {rank}"
            if self.waiting.ordered:
                head = self.channels[self._pair(t)].queues[rank][0]
                if head != t:
                    codes = self.send if self.sender[head] == rank else self.receive
                    return f"{text}, behind {code_text(codes[head])} on rank {rank}"
        return text
