"""Ideal against measured, action by action."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pipetrace.action import NO_ACTION, Action, BoolArray, IntArray
from pipetrace.errors import TraceError
from pipetrace.metrics import Bubbles, bubbles
from pipetrace.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Diff:
    """Two timelines of the same schedule, matched by identity.

    Both timelines are on a clock whose zero is their own first F, B, I or W; the *slip* of an action is on its end.

    Args:
        ideal, measured: The timelines.
        code, rank: Code and rank of each matched action, in order of ideal start; shape (n,). An overlapped pair is
            matched by halves.
        ideal_start, ideal_end, measured_start, measured_end: ns; shape (n,).
        missing: Actions of the ideal that were not measured.
        extra: Actions that were measured and are not in the ideal.
        reordered: Actions whose place in their rank's list was another one when measured; the fewest that explain it.
        ideal_bubbles, measured_bubbles: Both bubbles of each rank.
    """

    ideal: Timeline
    measured: Timeline
    code: IntArray
    rank: IntArray
    ideal_start: IntArray
    ideal_end: IntArray
    measured_start: IntArray
    measured_end: IntArray
    missing: tuple[Action, ...]
    extra: tuple[Action, ...]
    reordered: tuple[Action, ...]
    ideal_bubbles: Bubbles
    measured_bubbles: Bubbles

    @cached_property
    def recorded(self) -> tuple[int, ...]:
        """The ranks that have measured actions: of the others nothing is known, not even that they were idle."""
        return tuple(np.unique(self.measured.rank[self.measured.is_compute & (self.measured.replica == 0)]).tolist())

    @property
    def bubble_fractions(self) -> tuple[float, float]:
        """Σ global idle / (ranks × makespan) of the ranks that were recorded, ideal and measured."""
        return self._fraction(self.ideal_bubbles), self._fraction(self.measured_bubbles)

    @property
    def in_span_idle(self) -> tuple[int, int]:
        """ns of all ranks that were recorded, ideal and measured."""
        ideal, measured = (
            sum(of.in_span_idle[rank] for rank in self.recorded) for of in (self.ideal_bubbles, self.measured_bubbles)
        )
        return ideal, measured

    def _fraction(self, of: Bubbles) -> float:
        whole = len(self.recorded) * of.makespan
        return sum(of.global_idle[rank] for rank in self.recorded) / whole if whole else 0.0

    @property
    def slip(self) -> IntArray:
        """ns by which each matched action ended later than in the ideal; shape (n,)."""
        return self.measured_end - self.ideal_end

    @property
    def start_slip(self) -> IntArray:
        """ns by which each matched action started later; slip = start slip + growth of its own duration."""
        return self.measured_start - self.ideal_start

    @property
    def ideal_duration(self) -> IntArray:
        """ns; shape (n,)."""
        return self.ideal_end - self.ideal_start

    @property
    def measured_duration(self) -> IntArray:
        """ns; shape (n,)."""
        return self.measured_end - self.measured_start

    def to_dict(self, *, actions: bool = True) -> dict[str, Any]:
        """The whole diff as plain values, times in ns; `docs/figures.md` says what the figures mean.

        Args:
            actions: Whether single actions are told.
        """
        columns = (
            self.code,
            self.rank,
            self.ideal_start,
            self.measured_start,
            self.slip,
            self.ideal_duration,
            self.measured_duration,
        )
        names = (
            "action",
            "rank",
            "ideal_start_ns",
            "measured_start_ns",
            "slip_ns",
            "ideal_duration_ns",
            "measured_duration_ns",
        )
        recorded = set(self.recorded)
        table: dict[str, Any] = {
            "makespan_ns": {"ideal": self.ideal_bubbles.makespan, "measured": self.measured_bubbles.makespan},
            "bubble_fraction": dict(zip(("ideal", "measured"), self.bubble_fractions, strict=True)),
            "per_rank": [
                {
                    "rank": rank,
                    **{
                        name: {
                            "ideal": getattr(self.ideal_bubbles, field)[rank],
                            "measured": getattr(self.measured_bubbles, field)[rank] if rank in recorded else None,
                        }
                        for name, field in (
                            ("busy_ns", "busy"),
                            ("global_idle_ns", "global_idle"),
                            ("in_span_idle_ns", "in_span_idle"),
                        )
                    },
                }
                for rank in range(self.ideal.ranks)
            ],
            "missing": [str(action) for action in self.missing],
            "extra": [str(action) for action in self.extra],
            "reordered": [str(action) for action in self.reordered],
        }
        if actions:
            table["actions"] = [
                dict(zip(names, (str(Action.from_code(row[0])), *row[1:]), strict=True))
                for row in zip(*(column.tolist() for column in columns), strict=True)
            ]
        return table


def diff(ideal: Timeline, measured: Timeline) -> Diff:
    """Matches two timelines by the identity of their F, B, I and W.

    Args:
        ideal: One replica, e.g. from `simulate`.
        measured: What was recorded, of one replica.

    Raises:
        TraceError: The measured timeline has none of the ideal's actions, or another number of ranks.
    """
    if ideal.ranks != measured.ranks:
        raise TraceError(
            f"the schedule has {ideal.ranks} ranks, the recording {measured.ranks}",
            "give the schedule that was run, with its -p",
        )
    ideal, measured = ideal.from_first_action(), measured.from_first_action()
    left, right = _identities(ideal), _identities(measured)
    common, at_left, at_right = np.intersect1d(left.code, right.code, assume_unique=True, return_indices=True)
    if not common.size:
        raise TraceError(
            "nothing that was measured is an action of the schedule",
            "`pipetrace read` tells what the traces hold; give the schedule that was run",
        )
    astray = left.rank[at_left] != right.rank[at_right]
    if astray.any():
        at = int(np.argmax(astray))
        raise TraceError(
            f"{Action.from_code(int(common[at]))} was measured on rank {right.rank[at_right][at]}, "
            f"the schedule puts it on rank {left.rank[at_left][at]}",
            "give the schedule that was run: its placement differs",
        )
    order = np.lexsort((left.rank[at_left], left.start[at_left]))
    at_left, at_right = at_left[order], at_right[order]
    return Diff(
        ideal,
        measured,
        left.code[at_left],
        left.rank[at_left],
        left.start[at_left],
        left.end[at_left],
        right.start[at_right],
        right.end[at_right],
        _actions(left.code[~np.isin(left.code, common)]),
        _actions(right.code[~np.isin(right.code, common)]),
        _reordered(left, right, common),
        bubbles(ideal),
        bubbles(measured),
    )


def median_step(steps: Sequence[Timeline]) -> int:
    """Which of several measured steps has the median makespan; the shorter of the two middle ones where even.

    Raises:
        TraceError: There is no step.
    """
    if not steps:
        raise TraceError("no step was found in the traces", "`pipetrace read` tells what the traces hold")
    by_makespan = sorted(range(len(steps)), key=lambda i: steps[i].makespan)
    return by_makespan[(len(steps) - 1) // 2]


@dataclass(frozen=True, slots=True, eq=False)
class _Identities:
    """One row an action, a pair giving two; columns of shape (n,), codes unique."""

    code: IntArray
    rank: IntArray
    start: IntArray
    end: IntArray

    def pick(self, rows: IntArray | BoolArray) -> _Identities:
        return _Identities(self.code[rows], self.rank[rows], self.start[rows], self.end[rows])


def _identities(timeline: Timeline) -> _Identities:
    tiles = timeline.where(timeline.is_compute & (timeline.replica == 0))
    paired = tiles.partner != NO_ACTION
    every = _Identities(
        np.concatenate([tiles.code, tiles.partner[paired]]),
        *(np.concatenate([column, column[paired]]) for column in (tiles.rank, tiles.start, tiles.end)),
    )
    return every.pick(np.unique(every.code, return_index=True)[1])


def _actions(codes: IntArray) -> tuple[Action, ...]:
    return tuple(sorted((Action.from_code(code) for code in codes.tolist()), key=_by_place))


def _by_place(action: Action) -> tuple[int, int, int, int]:
    microbatch = -1 if action.microbatch is None else action.microbatch
    return action.pipe, action.stage, microbatch, int(action.kind)


def _reordered(left: _Identities, right: _Identities, common: IntArray) -> tuple[Action, ...]:
    """The actions off a longest run that both orders share, rank by rank."""
    left, right = left.pick(np.isin(left.code, common)), right.pick(np.isin(right.code, common))
    moved = []
    for rank in np.unique(left.rank).tolist():
        rows = np.flatnonzero(left.rank == rank)
        ideal, measured = left.pick(rows), right.pick(rows)  # both sorted by code, so row by row the same action
        measured_place = np.empty(rows.size, dtype=np.int64)
        measured_place[np.lexsort((measured.end, measured.start))] = np.arange(rows.size)
        # What the ideal starts and ends at once, as a pair's halves, has no order there: the measured one is right.
        ideal_order = np.lexsort((measured_place, ideal.end, ideal.start))
        kept = _longest_increasing(measured_place[ideal_order].tolist())
        moved += [
            code for code, place in zip(ideal.code.tolist(), measured_place.tolist(), strict=True) if place not in kept
        ]
    return _actions(np.array(moved, dtype=np.int64))


def _longest_increasing(values: Sequence[int]) -> set[int]:
    """The values of a longest increasing subsequence of distinct integers."""
    tails: list[int] = []  # the least value that ends a run of each length
    before: dict[int, int | None] = {}
    for value in values:
        at = bisect_left(tails, value)
        before[value] = tails[at - 1] if at else None
        tails[at : at + 1] = [value]
    kept = set()
    last = tails[-1] if tails else None
    while last is not None:
        kept.add(last)
        last = before[last]
    return kept
