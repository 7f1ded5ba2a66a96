"""One step of all ranks → a timeline.

What a rank's trace alone cannot tell comes from its peer's: a transfer starts when both sides have posted it, so a
receive's start needs the sender's trace, and a send's end the receiver's, and both need clocks that agree. A receive
of NCCL is a kernel that spins: before its start here it waited, from there on the data was on its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from pipetrace.action import ALL_TO_ALL_PARTS, NO_ACTION, RECV_KINDS, SEND_KINDS, Kind, code_kind, code_part
from pipetrace.timeline import COLUMNS, UNKNOWN, Lane, Timeline
from pipetrace.trace.labels import sender_of
from pipetrace.trace.reading.model import RankStep, Span, sent


@dataclass
class Lost:
    """What assembling found to be missing, over all steps.

    Args:
        never_waited: Receives, with their global rank, that were posted, but whose end is not in the trace.
        no_receive: Sends whose receive was not recorded, or not on the same clock.
        late_posts: Sends that seem to have been posted after they had arrived.
        backwards: Tiles whose end lay before their start, and were given no length.
    """

    never_waited: set[tuple[int, int]] = field(default_factory=set)
    no_receive: int = 0
    late_posts: int = 0
    backwards: int = 0


def assemble(
    ranks: int,
    steps: Mapping[int, RankStep],
    *,
    replicas: int = 1,
    apart: bool = True,
    common_clock: bool,
    lost: Lost,
) -> Timeline:
    """The timeline of one step.

    Args:
        ranks: Pipeline ranks of a replica.
        steps: The step of each global rank, replica × `ranks` + pipeline rank, that was recorded.
        replicas: Copies of the pipeline.
        apart: Whether each comes to an all-to-all by itself and waits in it for the others; where all are in one
            process, it begins when all have come.
        common_clock: Whether times of different ranks can be compared.
        lost: Is added to.

    Returns:
        Compute and transfer tiles; zero is the earliest start of a rank's step, `epoch` its Unix time.
    """
    rows = []
    met = _all_met(ranks, steps) if common_clock and apart else {}
    for replica in range(replicas):
        of_replica = {rank: step for rank, step in steps.items() if rank // ranks == replica}
        rows += _rows_of_replica(ranks, of_replica, met, common_clock=common_clock, lost=lost)
    # A trace without a single event has a step that begins nowhere.
    told = [step for step in steps.values() if step.compute or step.posts or step.arrivals] or steps.values()
    zero = min([*(step.begins for step in told), *(row[5] for row in rows)], default=0)
    return _timeline(ranks, replicas, rows, zero, lost)


# A row has the columns of a Timeline, in their order, with Unix times.
_Row = tuple[int, int, int, int, int, int, int, int, int]


def _all_met(ranks: int, steps: Mapping[int, RankStep]) -> dict[tuple[int, int], int]:
    """When the last replica had come to each all-to-all, by pipeline rank and code."""
    met: dict[tuple[int, int], int] = {}
    for global_rank, step in steps.items():
        for c in step.compute:
            if code_part(c.code) in ALL_TO_ALL_PARTS:
                key = global_rank % ranks, c.code
                met[key] = max(met.get(key, c.start), c.start)
    return met


def _rows_of_replica(
    ranks: int,
    steps: Mapping[int, RankStep],
    met: Mapping[tuple[int, int], int],
    *,
    common_clock: bool,
    lost: Lost,
) -> list[_Row]:
    rows = [row for rank in sorted(steps) for row in _compute(*divmod(rank, ranks), steps[rank], met)]
    senders = {code: at for step in steps.values() for code, at in sent(step)}
    receives: dict[int, Span] = {}
    for rank in sorted(steps):
        for row in _receives(rank, ranks, steps[rank], senders if common_clock else {}, lost):
            receives[sender_of(row[3])] = Span(row[5], row[6])
            rows.append(row)
    for rank in sorted(steps):
        rows += _sends(*divmod(rank, ranks), steps[rank], receives if common_clock else {}, lost)
    return rows


def _compute(replica: int, rank: int, step: RankStep, met: Mapping[tuple[int, int], int]) -> Iterator[_Row]:
    for c in (*step.compute, *step.closing):
        if code_part(c.code) in ALL_TO_ALL_PARTS:
            # As any transfer it starts when the last of those that it joins has come to it.
            start = min(met.get((rank, c.code), c.start), c.end)
            waited = step.idle_for.get(c.code, UNKNOWN)
            came = step.posts.get(c.code, c.start)
            yield replica, rank, int(Lane.ALL_TO_ALL), c.code, c.partner, start, c.end, came, waited
        else:
            yield replica, rank, int(Lane.COMPUTE), c.code, c.partner, c.start, c.end, UNKNOWN, UNKNOWN


def _receives(global_rank: int, ranks: int, step: RankStep, senders: Mapping[int, int], lost: Lost) -> Iterator[_Row]:
    replica, rank = divmod(global_rank, ranks)
    idle_since = _idle_since(step)
    for code, (waited, end) in step.arrivals.items():
        posted = step.posts.get(code, UNKNOWN)
        # Without the sender it is not known from when on it was under way. And clocks that differ by microseconds can
        # put the sender's post behind the arrival.
        sent_at = senders.get(sender_of(code))
        start = end if sent_at is None else min(max(sent_at, posted), end)
        yield replica, rank, int(Lane.RECV), code, NO_ACTION, start, end, posted, idle_since(waited, end)
    for code in step.posts:
        if _is(code, RECV_KINDS) and code not in step.arrivals:
            lost.never_waited.add((global_rank, code))


def _idle_since(step: RankStep) -> Callable[[int, int], int]:
    """From when on compute stood idle in a wait: the all-to-all lane may wait for a receive while compute goes on."""
    if not any(code_part(c.code) for c in step.compute):
        return lambda waited, _end: waited
    computes = sorted((c.start, c.end) for c in step.compute if code_part(c.code) not in ALL_TO_ALL_PARTS)
    starts, ends = [start for start, _ in computes], list(accumulate((end for _, end in computes), max))

    def since(waited: int, end: int) -> int:
        before = bisect_left(starts, end)
        since = max(waited, ends[before - 1]) if before else waited
        return since if since < end else UNKNOWN

    return since


def _sends(replica: int, rank: int, step: RankStep, receives: Mapping[int, Span], lost: Lost) -> Iterator[_Row]:
    for code, posted in step.posts.items():
        if not _is(code, SEND_KINDS):
            continue
        if code not in receives:
            lost.no_receive += 1
        start, end = receives.get(code, Span(posted, posted))
        late = posted > end
        lost.late_posts += late
        yield replica, rank, int(Lane.SEND), code, NO_ACTION, start, end, UNKNOWN if late else posted, UNKNOWN


def _is(code: int, kinds: frozenset[Kind]) -> bool:
    return code_kind(code) in kinds


def _timeline(ranks: int, replicas: int, rows: list[_Row], zero: int, lost: Lost) -> Timeline:
    table = np.array(
        [[*row[:5], *(time if time == UNKNOWN else time - zero for time in row[5:])] for row in rows], dtype=np.int64
    ).reshape(-1, len(COLUMNS))
    columns = {name: table[:, i].copy() for i, name in enumerate(COLUMNS)}
    backwards = columns["end"] < columns["start"]
    lost.backwards += int(backwards.sum())
    columns["end"] = np.maximum(columns["end"], columns["start"])
    return Timeline.from_columns(ranks, columns, replicas=replicas, epoch=zero)
