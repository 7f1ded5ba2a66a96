"""Steps to be diffed: simulated ones, some with noise and with a fault."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from pipetrace.action import NO_ACTION, Action, BoolArray, Pair
from pipetrace.costs import Costs
from pipetrace.diff.replay import NEVER, Graph, Inputs, arrivals
from pipetrace.diff.work import Work
from pipetrace.metrics.tiles import Lookup
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.waiting import Wait, Waiting
from tests.strategies import Sizes, costs, sizes, within


@st.composite
def waitings(draw: st.DrawFn) -> Waiting:
    """Ways of waiting under which every valid schedule without listed communication ends."""
    policy = draw(st.sampled_from(tuple(Wait)))
    return Waiting(policy, post=draw(st.sampled_from((0, 1_000, 70_001))))


@st.composite
def two_costs(draw: st.DrawFn) -> tuple[Schedule, Costs, Costs]:
    """A schedule, and two models that may be run with it."""
    size: Sizes = draw(sizes(4, 8))
    schedule = size.build()
    return schedule, within(draw(costs(8)), schedule), within(draw(costs(8)), schedule)


def span_of(timeline: Timeline) -> int:
    """ns from the first to the last compute tile, by hand."""
    return int(timeline.end[timeline.is_compute].max() - timeline.start[timeline.is_compute].min())


@dataclass(frozen=True)
class Step:
    """A simulated step that can be given noise and faults.

    Args:
        work: Its rows.
        inputs: What it is played with.
        order: Its graph.
    """

    work: Work
    inputs: Inputs
    order: Graph

    @classmethod
    def noisy(cls, schedule: Schedule, costs: Costs, seed: int, tiles: float, host: int) -> Step:
        """A step whose actions vary by a share `tiles`, whose transfers and gaps by `host` ns (standard deviations)."""
        work = Work.of(schedule, [])
        rng = np.random.default_rng(seed)
        inputs = work.at(costs)
        duration = np.round(inputs.duration * np.clip(rng.normal(1, tiles, len(work)), 0.1, None)).astype(np.int64)
        change = (duration - inputs.duration)[work.producer]
        return cls(
            work,
            inputs.but(
                duration=duration,
                ready=inputs.ready + change,
                time=np.maximum(0, inputs.time + np.round(rng.normal(0, host, inputs.time.size)).astype(np.int64)),
                gap=np.abs(np.round(rng.normal(0, host, len(work)))).astype(np.int64),
            ),
            work.graph,
        )

    def slower(self, rows: BoolArray, factor: float) -> Step:
        """Some rows take `factor` times as long; outputs leave with the end."""
        duration = np.where(rows, np.round(self.inputs.duration * factor), self.inputs.duration).astype(np.int64)
        return replace(self, inputs=self.inputs.but(duration=duration, ready=duration[self.work.producer]))

    @property
    def makespan(self) -> int:
        """ns."""
        return self.order.makespans([self.inputs])[0]

    def timeline(self) -> Timeline:
        """What is measured of it."""
        work, inputs = self.work, self.inputs
        ((start, end),) = self.order.play([inputs])
        there = arrivals(inputs, self.order, start, end)
        sent = start[work.producer] + inputs.ready + inputs.delay
        posted = np.append(end, 0)[np.where(inputs.anchor == -1, len(work), inputs.anchor)] + inputs.after
        posted = np.where(inputs.after == NEVER, 0, posted)
        idle = np.append(end, 0)[self.order.previous][work.consumer]
        moved = inputs.present[work.producer] & inputs.present[work.consumer]
        began = np.maximum(sent, posted)
        tiles = [
            Tile(_item(work, row), int(work.rank[row]), Lane.COMPUTE, int(start[row]), int(end[row]))
            for row in np.flatnonzero(inputs.present).tolist()
        ]
        for t in np.flatnonzero(moved).tolist():
            begin, arrived = int(began[t]), int(there[t])
            waited = int(idle[t]) if idle[t] < arrived else None
            tiles += [
                Tile(
                    Action.from_code(int(work.send[t])), int(work.sender[t]), Lane.SEND, begin, arrived, int(sent[t])
                ),
                Tile(
                    Action.from_code(int(work.receive[t])), int(work.receiver[t]), Lane.RECV, begin, arrived,
                    int(posted[t]), waited,
                ),
            ]  # fmt: skip
        return Timeline.from_tiles(work.schedule.ranks, tiles)

    def recorded(self) -> Timeline:
        """The same as a profiler records it: a wait begins when the lane is free, and ends when the data is there."""
        timeline, work = self.timeline(), self.work
        ((start, end),) = self.order.play([self.inputs])
        idle = np.append(end, 0)[self.order.previous][work.consumer]
        use = start[work.consumer]
        at = Lookup(work.receive, np.arange(work.receive.size, dtype=np.int64)).find(timeline.code)
        mine, at = (at >= 0) & (timeline.lane == Lane.RECV), np.maximum(at, 0)
        waited = np.where(mine, np.minimum(idle[at], use[at]), timeline.waited)
        ends = np.where(mine, np.minimum(np.maximum(timeline.end, waited + 1_000), use[at]), timeline.end)
        columns = {name: getattr(timeline, name) for name in ("rank", "lane", "code", "partner", "start", "posted")}
        return Timeline.from_columns(timeline.ranks, columns | {"end": ends, "waited": waited}, epoch=_RECORDED)


_RECORDED = 1_700_000_000 * 10**9


def _item(work: Work, row: int) -> Action | Pair:
    action, partner = Action.from_code(int(work.code[row])), int(work.partner[row])
    return action if partner == NO_ACTION else Pair(action, Action.from_code(partner))
