"""Schedule + costs → the ideal timeline.

A rank runs its list in order; an action starts when the one before it has ended and its inputs have arrived. A transfer
starts when both sides have posted it. Unless told otherwise receives are posted ahead and sends block nobody, and the
timeline is the longest path through the schedule's graph; other ways of waiting are played event by event. A schedule
in parts of layers runs on two lanes a rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind, is_all_to_all
from pipetrace.after_step import after_step
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.events import RECV, RUN, SEND, Played, Program, StepPlayer
from pipetrace.lanes import lane_times
from pipetrace.links import Links, longest_path
from pipetrace.ready import ready_lists
from pipetrace.schedule import Schedule
from pipetrace.timeline import UNKNOWN, Lane, Timeline
from pipetrace.transfers import Transfers, is_transfer
from pipetrace.waiting import Wait, Waiting


def simulate(schedule: Schedule, costs: Costs | None = None, waiting: Waiting | None = None) -> Timeline:
    """The timeline of a schedule at given costs.

    Args:
        schedule: What is run.
        costs: F = I = W = 1 ms and free transfers when None.
        waiting: How ranks wait for what they receive; receives posted ahead, list order kept, when None.

    Returns:
        A tile for each action (one for an overlapped pair) and, where transfers cost something, two for each transfer
        between ranks: the send on the sender and the receive on the receiver; and the gradient reductions and
        optimisers that cost something. Parts of layers lie on the compute and the all-to-all lane. Zero is the start
        of the step.

    Raises:
        ScheduleError: The schedule is not valid; or it is in parts of layers, and `waiting` may leave the list order or
            has costs of its own.
        DeadlockError: The ranks wait for each other.
    """
    costs, waiting = costs or Costs(), waiting or Waiting()
    links = schedule.links
    duration = costs.durations(schedule)
    forward_ready, backward_ready = costs.ready(schedule, duration)
    transfers = schedule.transfers
    time = costs.transfer_times(transfers.sender, transfers.receiver)
    is_gradient = code_kind(transfers.receive) == Kind.RECV_B
    ready = np.where(is_gradient, backward_ready[transfers.producer], forward_ready[transfers.producer])
    if schedule.has_parts:
        ahead = waiting.policy is not Wait.INLINE
        if not _is_longest_path(schedule, waiting if ahead else replace(waiting, policy=Wait.PREFETCH)):
            raise ScheduleError(
                f"{schedule.name} is in parts of layers, whose order on two lanes is fixed and whose transfers are "
                "free of further costs",
                "leave out --wait dataflow (or add --no-reorder), --channel, --post and --spin, or simulate whole "
                "stages (--grain stage)",
            )
        times = lane_times(schedule, costs, ahead=ahead)
        played = _as_played(links, transfers, times.start, duration, ready, time)
        posted = times.posted[transfers.consumer]
        began = np.maximum(played.sent, posted)
        played = replace(played, idle_since=times.idle_since, received=posted, began=began, arrived=began + time)
    elif _is_longest_path(schedule, waiting):
        delay = np.zeros((2, duration.size), dtype=np.int64)
        delay[is_gradient.astype(np.int64), transfers.consumer] = time
        start = longest_path(
            links,
            duration,
            forward_ready=forward_ready,
            backward_ready=backward_ready,
            input_delay=delay[0],
            gradient_delay=delay[1],
        )
        played = _as_played(links, transfers, start, duration, ready, time)
    else:
        played = _player(schedule, duration, ready, time, waiting).play()
    return _timeline(schedule, costs, time, played)


def _is_longest_path(schedule: Schedule, waiting: Waiting) -> bool:
    """Whether nothing but the graph decides when actions start."""
    in_order = waiting.policy is not Wait.INLINE and not waiting.reorders
    free = not (waiting.ordered or waiting.post or waiting.spin)
    return in_order and free and not schedule.has_communication


def _as_played(
    links: Links, transfers: Transfers, start: IntArray, duration: IntArray, ready: IntArray, time: IntArray
) -> Played:
    """What follows from the starts when receives are posted ahead."""
    end = start + duration
    idle_since = np.roll(end, 1)
    idle_since[links.first[:-1][np.diff(links.first) > 0]] = 0
    left = start[transfers.producer] + ready
    return Played(start, end, idle_since, left, np.zeros_like(left), left, left + time)


def _player(schedule: Schedule, duration: IntArray, ready: IntArray, time: IntArray, waiting: Waiting) -> StepPlayer:
    return StepPlayer(
        schedule.links,
        duration,
        schedule.transfers,
        ready,
        time,
        _programs(schedule, waiting),
        sends_itself=not schedule.has_communication,
        waiting=waiting,
    )


def _programs(schedule: Schedule, waiting: Waiting) -> list[Program]:
    """What every rank does: the list with its explicit posts, or with receives posted ahead or at their use."""
    transfers, compute = schedule.transfers, (~is_transfer(schedule.code)).tolist()
    codes, first = schedule.code.tolist(), schedule.first.tolist()
    post = {code: (SEND, t) for t, code in enumerate(transfers.send.tolist())}
    post |= {code: (RECV, t) for t, code in enumerate(transfers.receive.tolist())}
    needs: dict[int, list[tuple[int, int]]] = {}
    for t, target in enumerate(transfers.consumer.tolist()):
        needs.setdefault(target, []).append((RECV, t))
    run = (RUN, -1)
    programs = []
    for (begin, end), actions in zip(itertools.pairwise(first), ready_lists(schedule, waiting), strict=True):
        rows = [row for row in range(begin, end) if compute[row]]
        steps: list[tuple[int, int]]
        if schedule.has_communication:
            steps = [run if compute[row] else post[codes[row]] for row in range(begin, end)]
        elif waiting.policy is Wait.INLINE:
            steps = [step for row in rows for step in (*needs.get(row, ()), run)]
        else:
            steps = [step for row in rows for step in needs.get(row, ())] + [run] * len(rows)
        programs.append(Program(actions(), steps))
    return programs


def _timeline(schedule: Schedule, costs: Costs, time: IntArray, played: Played) -> Timeline:
    transfers = schedule.transfers
    compute = ~is_transfer(schedule.code)
    ranks = schedule.links.rank
    free = np.zeros(schedule.ranks, dtype=np.int64)
    np.maximum.at(free, ranks[compute], played.end[compute])
    tiles: list[Mapping[str, IntArray]] = [
        {
            "rank": ranks[compute],
            "code": schedule.code[compute],
            "partner": schedule.partner[compute],
            "start": played.start[compute],
            "end": played.end[compute],
            "lane": np.where(is_all_to_all(schedule.code[compute]), int(Lane.ALL_TO_ALL), int(Lane.COMPUTE)),
        },
        after_step(schedule, costs, free),
    ]
    if time.any():
        idle_since = played.idle_since[transfers.consumer]
        when = {"start": played.began, "end": played.arrived}
        waited = np.where(idle_since < played.arrived, idle_since, UNKNOWN)
        sent = {"rank": transfers.sender, "code": transfers.send, "posted": played.sent, **when}
        received = {"rank": transfers.receiver, "code": transfers.receive, "posted": played.received, **when}
        tiles += [
            sent | {"lane": np.full_like(transfers.send, Lane.SEND)},
            received | {"lane": np.full_like(transfers.send, Lane.RECV), "waited": waited},
        ]
    return Timeline.from_columns(schedule.ranks, _stacked(tiles))


def _stacked(tiles: Sequence[Mapping[str, IntArray]]) -> dict[str, IntArray]:
    """Columns of several kinds of tiles below each other; what a kind does not have is filled."""
    fill = {"partner": NO_ACTION, "lane": int(Lane.COMPUTE), "posted": UNKNOWN, "waited": UNKNOWN}
    names = {"rank", "code", "start", "end", *fill}
    return {
        name: np.concatenate([part[name] if name in part else np.full_like(part["code"], fill[name]) for part in tiles])
        for name in names
    }
