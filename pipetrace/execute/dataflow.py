"""Waiting by *dataflow*: all receives posted ahead; the first action that is ready runs, by the rule of `ready`.

A rank decides with its own list and what has arrived. Threads wait for the receives, as in `arrivals`, and hand them
over; the rank itself waits only when nothing can run, and then under the label of what the first action of its list
waits for. That wait ends as soon as anything can run. The last `WAIT:` of a receive in a step ends when it was there;
where it came while the rank was busy that is one of no length, before its use.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue

from pipetrace.execute.arrivals import Arrival, WatchedTransport
from pipetrace.execute.board import Phase
from pipetrace.execute.step import Seat, Step
from pipetrace.ready import NOTHING, ReadyList


class DataflowStep(Step):
    """See the module and `Step`.

    Args:
        actions: Makes what the rank chooses from, at a step's beginning.
        delays: ns by which what comes from a rank is late, by sender.
    """

    def __init__(self, of: Seat, *, actions: Callable[[], ReadyList], delays: Mapping[int, int]) -> None:
        self._arrivals: SimpleQueue[Arrival] = SimpleQueue()
        watched = WatchedTransport(of.transport, delays, only_delayed=False, tell=self._arrivals.put)
        super().__init__(replace(of, transport=watched))
        self._begin_list = actions
        self._by_row = {work.op.row: work for work in self._works}
        self._consumer = {receive.code: work.op.row for work in self._works for receive in work.receives}
        self._after: dict[int, list[int]] = {row: [] for row in self._by_row}
        for row, work in self._by_row.items():
            for producer in work.op.after:
                self._after[producer].append(row)
        # Of the step that runs: its list, how many things each row lacks, what has come, whose wait has been shown, and
        # what a slow link holds back still.
        self._list = actions()
        self._lacks: dict[int, int] = {}
        self._come: set[int] = set()
        self._shown: set[int] = set()
        self._late: list[tuple[int, int, Arrival]] = []

    def _play(self) -> None:
        self._list = self._begin_list()
        self._come.clear()
        self._shown.clear()
        for row, work in self._by_row.items():
            self._lacks[row] = len(work.receives) + len(work.op.after)
            if not self._lacks[row]:
                self._list.add(row)
        for work in self._works:
            for receive in work.receives:
                self._post(receive)
        while self._list.rows:
            while (arrival := self._poll()) is not None:
                self._take_in(arrival)
            row = self._list.choose()
            if row == NOTHING:
                row = self._idle()
            work = self._by_row[row]
            for receive in work.receives:
                if receive.code in self._shown:
                    self._values[receive.code] = receive.buffer
                else:
                    self._wait(receive)
            self._list.start(row)
            self._perform(work)
            self._list.end(row)
            for consumer in self._after[row]:
                self._has(consumer)

    def _idle(self) -> int:
        """Waits until a row can start, and returns it."""
        # All that its own rank makes for the first action came before it in the list: it lacks a receive.
        first = self._by_row[self._list.rows[0]]
        awaited = next(receive for receive in first.receives if receive.code not in self._come)
        self._line.at(Phase.WAITING, awaited.code)
        with self._label(awaited.wait):
            while (row := self._list.choose()) == NOTHING:
                self._take_in(self._block())
        if awaited.code in self._come:
            self._shown.add(awaited.code)
        return row

    def _take_in(self, arrival: Arrival) -> None:
        arrival.wait()
        code = arrival.transfer.receive.code
        self._come.add(code)
        self._has(self._consumer[code])

    def _has(self, row: int) -> None:
        """One more thing that a row needs is there."""
        self._lacks[row] -= 1
        if not self._lacks[row]:
            self._list.add(row)

    def _poll(self) -> Arrival | None:
        """A receive that may be seen by now; None where there is none."""
        while not self._arrivals.empty():
            self._keep(self._arrivals.get())
        if self._late and self._late[0][0] <= time.perf_counter_ns():
            return heapq.heappop(self._late)[2]
        return None

    def _block(self) -> Arrival:
        """The next receive that may be seen, waited for."""
        while (arrival := self._poll()) is None:
            pause = None
            if self._late:
                pause = max(0, self._late[0][0] - time.perf_counter_ns()) * 1e-9
            with suppress(Empty):
                self._keep(self._arrivals.get(timeout=pause))
        return arrival

    def _keep(self, arrival: Arrival) -> None:
        heapq.heappush(self._late, (arrival.due, arrival.transfer.receive.code, arrival))
