"""One step of all ranks in one process, on one device: a compute and a communication stream for every rank.

The process walks through the ranks' lists in an order in which everything an action waits for comes before it, and
gives each action to its rank's compute stream. What travels is copied by the sender's communication stream into the
receiver's buffer, between two events: the copy waits for the output, the consumer for the copy. So the streams keep
the list order and the events the hand-overs, and the process itself waits for nothing before the step's end.

In parts of MoE layers every rank has a third stream, for all-to-alls. Where several replicas share the process each of
their ranks has streams of its own, and an all-to-all is copies too: when all members have come to it, each takes what
the others offer. A member that waited for one that comes later in the same process would wait for ever; that is why
such a part is taken apart (`Offering`).

Where ranks may leave their lists (*dataflow*) the process looks on: it gives a rank its next action, by the rule of
`ready`, when the one before has ended, so that what was ready first runs first.

Ranks that share a device share what computes on it: synthetic kernels run side by side, real ones take from each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.execute.board import Line, Phase
from pipetrace.execute.compute import all_to_alls, offered, run_half
from pipetrace.execute.devices.base import Device, Event, Stream
from pipetrace.execute.devices.lanes import LaneStreams
from pipetrace.execute.expert_parallel import Offer, Offering, taken
from pipetrace.execute.lane_rows import LaneRow, lane_rows
from pipetrace.execute.program import Half, Op, Program, Transfer, compile_rank
from pipetrace.execute.stages.base import Stage
from pipetrace.lanes import issue_order
from pipetrace.ready import NOTHING, ReadyList
from pipetrace.schedule import Schedule

_LOOK_S = 20e-6  # between two looks at what has ended

Label: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Marks what is called inside it in the trace."""


class _Replica:
    """One replica's stages, and what it hands over in a step. Places in lists are pipeline ranks.

    Args:
        stages: By (pipe, stage).
        lanes: Streams of each rank.
        communication: Likewise.
        buffers: Room for what travels, by the receive's code.
    """

    def __init__(
        self,
        stages: Mapping[tuple[int, int], Stage],
        lanes: list[LaneStreams],
        communication: list[Stream],
        buffers: dict[int, torch.Tensor],
    ) -> None:
        self.stages, self.lanes, self.communication, self.buffers = stages, lanes, communication, buffers
        # A value lives to the end of the step: a stream may still read what another has long let go.
        self.values: dict[int, torch.Tensor] = {}
        self.kept: list[torch.Tensor] = []
        self.arrived: dict[int, Event] = {}

    @property
    def streams(self) -> list[tuple[int, str, Stream]]:
        """Every stream with its rank and what it runs."""
        found: list[tuple[int, str, Stream]] = [(rank, "compute", of.compute) for rank, of in enumerate(self.lanes)]
        found += [
            (rank, "all-to-all", of.all_to_all) for rank, of in enumerate(self.lanes) if of.all_to_all is not of.compute
        ]
        return found + [(rank, "communication", stream) for rank, stream in enumerate(self.communication)]

    def take(self, half: Half) -> torch.Tensor | None:
        """What an action takes, which others may still be reading."""
        value = self.values.pop(half.takes, None)
        if value is not None:
            self.kept.append(value)
        return value

    def put(self, half: Half, output: torch.Tensor | None) -> None:
        """What an action gives."""
        if output is not None:
            self.values[half.gives] = output

    def clear(self) -> None:
        """Lets go of a step that has ended."""
        self.values.clear()
        self.kept.clear()
        self.arrived.clear()


class OneDeviceStep:
    """Runs all ranks' programs, step after step.

    Args:
        schedule: What all ranks of all replicas run.
        stages: Of each replica, by (pipe, stage).
        device: Where everything lies and runs.
        buffer: Makes room on the device for the value that a receive brings.
        line: Where the process says what it does.
        label: Marks it in the trace.
        finish: What is left to do at a step's end, on rank 0's compute stream.
        lists: For each rank of the one replica, what makes that from which it chooses, at a step's beginning; None
            where all keep their lists.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[Mapping[tuple[int, int], Stage]],
        device: Device,
        buffer: Callable[[Action], torch.Tensor],
        line: Line,
        label: Label,
        finish: Callable[[], None] = lambda: None,
        lists: Sequence[Callable[[], ReadyList]] | None = None,
    ) -> None:
        self._lists = lists
        self._device, self._line, self._label, self._finish = device, line, label, finish
        self._programs = programs = [compile_rank(schedule, rank) for rank in range(schedule.ranks)]
        self._replicas = [
            _Replica(
                of,
                [LaneStreams(device, both=schedule.has_parts) for _ in programs],
                [device.stream() for _ in programs],
                {t.receive.code: buffer(t.receive) for program in programs for t in program.receives},
            )
            for of in stages
        ]
        self._rows = {row.op.row: (program.rank, row) for program in programs for row in lane_rows(schedule, program)}
        self._order = issue_order(schedule).tolist()
        self._after: dict[int, list[int]] = {row: [] for row in self._rows}
        self._consumer: dict[int, int] = {}
        for number, (_, row) in self._rows.items():
            for producer in row.op.after:
                self._after[producer].append(number)
            for transfer in row.op.receives:
                self._consumer[transfer.receive.code] = number
        # Rows in the order in which each rank ran them in the last step.
        self._ran: list[list[int]] = [[op.row for op in program.ops] for program in programs]

    def named_streams(self) -> list[dict[str, Any]]:
        """Every stream as the profiler calls it, with its global rank and what it runs; plain values."""
        streams = [
            (number * len(self._programs) + rank, runs, stream)
            for number, of in enumerate(self._replicas)
            for rank, runs, stream in of.streams
        ]
        names = self._device.names([stream for _, _, stream in streams])
        return [
            {"stream": name, "rank": rank, "runs": runs} for name, (rank, runs, _) in zip(names, streams, strict=True)
        ]

    def run(self) -> None:
        """One step; returns when the device has run all of it.

        Raises:
            RuntimeError: Work on the device broke.
        """
        for of in self._replicas:
            for stage in of.stages.values():
                stage.begin_step()
        if self._lists is None:
            for number in self._order:
                self._give_all(*self._rows[number])
        else:
            self._look_on([begin() for begin in self._lists])
        last = self._replicas[0].lanes[0].compute
        for of in self._replicas:
            for _, _, stream in of.streams:
                if stream is not last:
                    last.wait(stream.record())
        last.run(self._finish)
        self._line.at(Phase.DEVICE)
        self._device.synchronize()
        for of in self._replicas:
            of.clear()
        self._line.step_done()

    @property
    def ran(self) -> list[Program]:
        """The programs of a replica's ranks in the order in which the last step ran them."""
        return [
            replace(program, ops=tuple(self._rows[row][1].op for row in rows))
            for program, rows in zip(self._programs, self._ran, strict=True)
        ]

    def _look_on(self, lists: Sequence[ReadyList]) -> None:
        """Gives each rank what is ready, as it becomes free."""
        (of,) = self._replicas
        lacks = {number: len(row.op.receives) + len(row.op.after) for number, (_, row) in self._rows.items()}
        running: dict[int, tuple[int, Event]] = {}
        self._ran = [[] for _ in lists]

        def has(number: int) -> None:
            lacks[number] -= 1
            if lacks[number] <= 0:
                lists[self._rows[number][0]].add(number)

        for number in [number for number, count in lacks.items() if not count]:
            has(number)
        under_way: dict[int, Event] = {}
        while any(left.rows for left in lists):
            moved = False
            for rank, (number, ended) in list(running.items()):
                if ended.done():
                    moved = True
                    del running[rank]
                    lists[rank].end(number)
                    for consumer in self._after[number]:
                        has(consumer)
            for code, arrived in list(under_way.items()):
                if arrived.done():
                    moved = True
                    del under_way[code]
                    has(self._consumer[code])
            for rank, left in enumerate(lists):
                number = left.choose() if rank not in running and left.rows else NOTHING
                if number != NOTHING:
                    moved = True
                    left.start(number)
                    self._ran[rank].append(number)
                    row = self._rows[number][1]
                    running[rank] = number, self._give(of, rank, row)
                    sends = [half.sends.receive.code for half in row.op.halves if half.sends is not None]
                    under_way |= {code: of.arrived[code] for code in sends}
            if not moved:
                # Also when work broke: events are reached all the same, and the step's end raises it.
                time.sleep(_LOOK_S)

    def _give_all(self, rank: int, row: LaneRow) -> None:
        """Gives an action to the streams of its rank in every replica."""
        if row.travels and len(self._replicas) > 1:
            self._give_together(rank, row)
        else:
            for of in self._replicas:
                self._give(of, rank, row)

    def _give(self, of: _Replica, rank: int, row: LaneRow) -> Event:
        """Gives an action to its rank's streams, and what it sends; returns its end."""
        stream = self._enter(of, rank, row)
        stream.run(lambda: self._compute(of, row.op))
        return self._leave(of, rank, row)

    def _enter(self, of: _Replica, rank: int, row: LaneRow) -> Stream:
        self._line.at(Phase.COMPUTING, *(half.action.code for half in row.op.halves))
        return of.lanes[rank].enter(row, lambda stream, transfer: stream.wait(of.arrived[transfer.receive.code]))

    def _leave(self, of: _Replica, rank: int, row: LaneRow) -> Event:
        ended = of.lanes[rank].leave(row)
        sends = [half.sends for half in row.op.halves if half.sends is not None]
        if sends:
            out = of.communication[rank]
            out.wait(ended)
            for transfer in sends:
                out.run(lambda transfer=transfer: self._copy(of, transfer))  # type: ignore[misc]
                of.arrived[transfer.receive.code] = out.record()
        return ended

    def _compute(self, of: _Replica, op: Op) -> None:
        with self._label(f"PP:{op.text}"):
            # Both halves of a pair start with what both take, as their ideal does.
            values = [of.take(half) for half in op.halves]
            for half, value in zip(op.halves, values, strict=True):
                of.put(half, run_half(of.stages, half, value))

    def _copy(self, of: _Replica, transfer: Transfer) -> None:
        code = transfer.receive.code
        value, buffer = of.values[code], of.buffers[code]
        with self._label(f"POST:{transfer.send}"):
            buffer.copy_(value, non_blocking=True)
        of.kept.append(value)
        of.values[code] = buffer

    def _give_together(self, rank: int, row: LaneRow) -> None:
        """Gives an all-to-all to the streams of one rank of all replicas: each offers, then each takes.

        In the trace a rank has come to it with its `POST:`, and from its `PP:` on all have.
        """
        half, text, members = row.op.halves[0], row.op.text, range(len(self._replicas))
        streams = [self._enter(of, rank, row) for of in self._replicas]
        meeting = _Meeting(self._replicas, half, self._device.use)
        for member in members:
            streams[member].run(lambda member=member: self._labelled(f"POST:{text}", meeting.begin, member))  # type: ignore[misc]
        for number in range(meeting.count):
            come = [stream.record() for stream in streams]
            for member, stream in enumerate(streams):
                for other in members:
                    if other != member:
                        stream.wait(come[other])
            label = f"PP:{text}" if number == meeting.count - 1 else ""
            for member, stream in enumerate(streams):
                stream.run(
                    lambda member=member, number=number, label=label: self._labelled(  # type: ignore[misc]
                        label, meeting.go_on, member, number
                    )
                )
        for of in self._replicas:
            self._leave(of, rank, row)

    def _labelled(self, text: str, work: Callable[..., None], *arguments: int) -> None:
        with self._label(text) if text else nullcontext():
            work(*arguments)


class _Meeting:
    """An all-to-all part of one rank of all replicas, taken apart.

    Args:
        replicas: Whose.
        half: The action.
        use: See `Device`.
    """

    def __init__(self, replicas: Sequence[_Replica], half: Half, use: Callable[[torch.Tensor], None]) -> None:
        self._replicas, self._half, self._use = replicas, half, use
        self.count = all_to_alls(replicas[0].stages, half)
        self._works: dict[int, Offering] = {}
        # Of each all-to-all that the part makes, what every member offers.
        self._offers: list[dict[int, Offer]] = [{} for _ in range(self.count)]

    def begin(self, member: int) -> None:
        """A member comes to the first."""
        of = self._replicas[member]
        work = self._works[member] = offered(of.stages, self._half, of.take(self._half))
        self._offers[0][member] = next(work)

    def go_on(self, member: int, number: int) -> None:
        """A member takes what all have offered, and goes on to its next offer or to the part's end."""
        offers = [self._offers[number][other] for other in range(len(self._replicas))]
        for offer in offers:
            self._use(offer.rows)
        try:
            self._offers[number + 1][member] = self._works[member].send(taken(member, offers))
        except StopIteration as ended:
            self._replicas[member].put(self._half, ended.value)
