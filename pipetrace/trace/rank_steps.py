"""What one rank did in each step.

Whichever way a trace was labelled, and where it was not, the same comes out: compute with its times, when each transfer
was posted, and when each receive was waited for and there. On a GPU the times are those of kernels.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pipetrace.action import (
    ALL_TO_ALL_PARTS,
    NO_ACTION,
    RECV_KINDS,
    Kind,
    code_kind,
    code_microbatch,
    code_part,
    code_pipe,
    code_stage,
    pack,
)
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.labels import COUNTED, Labels, LabelStyle, Role, transfer_of
from pipetrace.trace.load import TraceFile
from pipetrace.trace.reading.device import Device, device_of, of_kernels
from pipetrace.trace.reading.doubts import doubts_of
from pipetrace.trace.reading.model import WHOLE_TRACE, Compute, RankStep, RankSteps, Span
from pipetrace.trace.reading.p2p import Transfer, transfers_of
from pipetrace.trace.reading.ranges import Found, ranges_of
from pipetrace.trace.reading.recompute import Recomputed, recomputed
from pipetrace.trace.reading.rounds import NAME, rounds_of
from pipetrace.trace.reading.unlabelled import match_steps
from pipetrace.trace.reading.wanted import Wanted, waited_from
from pipetrace.trace.reading.work import work_of

CLOSING_KINDS = (Kind.REDUCE_GRAD, Kind.OPTIM)
"""What closes a step: gradient reduction and optimiser."""


WAITED_WITHIN = "receives were posted and waited for inside of labels: the waits count as compute there"


@dataclass(frozen=True)
class Reading:
    """How traces are read.

    Args:
        labels: How names are read.
        schedule: Name of what was run; empty where that is not known.
        wanted: Each rank's list of it.
    """

    labels: Labels = field(default_factory=Labels)
    schedule: str = ""
    wanted: Sequence[Sequence[Wanted]] = ()


def read_steps(trace: TraceFile, rank: int, how: Reading | None = None) -> RankSteps:
    """Sorts what a rank did into its steps.

    Args:
        trace: Of the rank.
        rank: Its pipeline rank.
        how: How to read it.

    Raises:
        TraceError: Nothing is labelled, and it is not in the order of the schedule that was named.
    """
    how = how or Reading()
    events = trace.events
    device = device_of(events)
    ranges = ranges_of(events, rank, how.labels, is_ours=bool(trace.pipetrace))
    transfers = transfers_of(events, device)
    result = RankSteps(
        ranges.style,
        {},
        transfers=len(transfers.all),
        unreadable=ranges.unreadable,
        nearly=ranges.nearly,
        repeated=ranges.repeated,
        doubts=doubts_of(events, device, ranges.rows),
        peak_memory=_peaks(events.memory),
    )
    again = recomputed(events, device)
    result.tells_recompute = again.is_known
    if device is not None:
        result.kernels, result.unlaunched = device.start.size, device.unlaunched
    if ranges.style is LabelStyle.NONE and rank < len(how.wanted):
        work = work_of(events, device, transfers)
        match_steps(result, rank, how.schedule, how.wanted[rank], work, device, transfers, ranges.windows, again)
        return result
    found = _counted(ranges.labels, ranges.windows)
    begins = [f.start for f in found]
    inside = 0
    for name, window in ranges.windows.items():
        mine = found
        if name != WHOLE_TRACE:
            mine = found[bisect_left(begins, window.start) : bisect_left(begins, window.end)]
        rounds = rounds_of(mine) if name == WHOLE_TRACE else [mine]
        inside += sum(map(len, rounds))
        if name == WHOLE_TRACE and ranges.is_compute_alone:
            parts = _around(transfers.all, rounds)
        else:
            moved = [t for t in transfers.all if window.start <= t.posted <= window.end]
            parts = [_between(moved, one, after) for one, after in pairwise([*rounds, []])] if rounds[1:] else [moved]
        for at, (one, part) in enumerate(zip(rounds, parts, strict=True)):
            called = name if len(rounds) == 1 else f"{NAME}{at}"
            begin = window.start if at == 0 else min(f.start for f in one)
            result.steps[called] = _read_step(result, begin, one, part, device, again)
    result.outside = max(0, len(found) - inside)
    if device is None and ranges.is_compute_alone and ranges.style is not LabelStyle.RUNTIME:
        within = [t for t in transfers.all if not t.is_send and _holds(found, begins, t)]
        result.doubts |= {WAITED_WITHIN: len(within)} if within else {}
    return result


def _holds(found: Sequence[Found], begins: Sequence[int], transfer: Transfer) -> bool:
    """Whether a label lasts from a transfer's post to the end of the wait for it."""
    at = bisect_right(begins, transfer.posted) - 1
    return at >= 0 and transfer.end <= found[at].end


def _between(transfers: Sequence[Transfer], one: list[Found], after: list[Found]) -> list[Transfer]:
    """What was posted from a round's first label on until that of the one after it, which is empty behind the last."""
    begin = min(f.start for f in one)
    return [t for t in transfers if begin <= t.posted and (not after or t.posted < min(f.start for f in after))]


def _around(transfers: Sequence[Transfer], rounds: list[list[Found]]) -> list[list[Transfer]]:
    """The transfers of each round where labels stand for compute alone.

    What the first action needs is then posted before its label: between two rounds receives are the next one's, and
    sends the last one's.
    """
    firsts = [min(f.start for f in one) for one in rounds]
    lasts = [max(f.end for f in one) for one in rounds]
    parts: list[list[Transfer]] = [[] for _ in rounds]
    for transfer in transfers:
        if transfer.is_send:
            at = bisect_right(firsts, transfer.posted) - 1
        else:
            at = min(bisect_right(lasts, transfer.posted), len(rounds) - 1)
        if at >= 0:
            parts[at].append(transfer)
    return parts


def _peaks(memory: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    peaks: dict[str, int] = {}
    for device, _, bytes_ in memory:
        peaks[device] = max(peaks.get(device, 0), bytes_)
    return peaks


def _counted(found: list[Found], windows: Mapping[str, Span]) -> list[Found]:
    """Labels that name no microbatch get the number that they are of their kind and stage in their step."""
    if not any(code_microbatch(f.label.code) == COUNTED and f.label.style is LabelStyle.PATTERN for f in found):
        return found
    begins = [window.start for window in windows.values()]
    seen: Counter[tuple[int, int]] = Counter()
    counted = []
    for f in found:
        code = f.label.code
        if code_microbatch(code) == COUNTED:
            key = bisect_right(begins, f.start), code
            whole = pack(code_kind(code), code_stage(code), seen[key], code_pipe(code))
            seen[key] += 1
            f = Found(f.start, f.end, f.label._replace(code=whole))  # noqa: PLW2901
        counted.append(f)
    return counted


def _read_step(
    result: RankSteps,
    begins: int,
    found: list[Found],
    transfers: list[Transfer],
    device: Device | None,
    again: Recomputed,
) -> RankStep:
    step = RankStep(begins)
    seen: set[tuple[Role, int]] = set()
    computed: list[Found] = []
    ends: dict[int, int] = {}
    for f in found:
        role, code, partner = f.label.role, f.label.code, f.label.partner
        result.counts[kind_of(f)] += 1
        if role is not Role.WAIT and ((role, code) in seen or (role, partner) in seen):
            result.doubled.append((code, partner))
            continue
        seen.update({(role, half) for half in (code, partner) if half != NO_ACTION})
        if role is Role.COMPUTE:
            computed.append(f)
            if partner == NO_ACTION and code_kind(code) != Kind.F and (time := again.within(f.start, f.end)):
                step.recomputed[code] = time
        elif role is Role.WHOLE_STAGE and code_kind(code) in CLOSING_KINDS:
            step.closing += closing_of(f, device)
        elif role is Role.POST:
            step.posts[code] = f.start
        elif role is Role.WAIT and code_kind(code) in RECV_KINDS and device is None:
            # A rank may turn to something else meanwhile: the last wait of a step ends when it is there.
            step.arrivals[code] = Span(f.start, f.end)
        elif role is Role.WAIT and code_part(code):
            step.idle_for[code] = f.start
            ends[code] = f.end
    if device is not None:
        from_kernels(result, step, computed, device, is_ours=result.style is LabelStyle.PIPETRACE)
    elif result.style in (LabelStyle.PIPETRACE, LabelStyle.PATTERN):
        step.compute = [Compute(f.label.code, f.label.partner, f.start, f.end) for f in computed]
        # Where an all-to-all has no range of its own it lasts from its post to the end of the wait for it.
        ranges = {f.label.code for f in computed}
        alone = [code for code in ends if code not in ranges and code in step.posts]
        step.compute += [Compute(code, NO_ACTION, step.posts[code], ends[code]) for code in alone]
    else:
        _uncover(result, step, computed, transfers)
    lasted = {c.code: c.end - c.start for c in step.compute}
    step.recomputed = {code: min(ns, lasted[code]) for code, ns in step.recomputed.items() if code in lasted}
    on_lane = [c for c in step.compute if code_part(c.code) not in ALL_TO_ALL_PARTS]
    result.crossing += sum(b.start < a.end for a, b in pairwise(on_lane))
    # Labels of pipetrace's that stand for compute alone say nothing of what is received, but torch's ranges do.
    if device is not None or result.style is not LabelStyle.PIPETRACE or not step.arrivals:
        step.loose = _attach(result, step, found, computed, transfers)
    return step


def from_kernels(result: RankSteps, step: RankStep, computed: list[Found], device: Device, *, is_ours: bool) -> None:
    """The tile of an action is that of the kernels that were launched while its label stood, by whichever thread.

    The all-to-alls of an MoE layer are NCCL's kernels, all other actions are what NCCL's are not. pipetrace itself may
    do an all-to-all by copies, and pretend its length by a synthetic kernel: all that it launches there is part of it.
    """
    for f in computed:
        here = device.within(f.start, f.end)
        chosen = device.computes[here]
        if code_part(f.label.code) in ALL_TO_ALL_PARTS:
            chosen = np.ones_like(chosen) if is_ours else (device.communicates & ~device.is_p2p)[here]
        kernels = np.flatnonzero(chosen) + here.start
        if not kernels.size:
            result.without_kernels.append(f.label.code)
            continue
        start, end, on_device = of_kernels(device, kernels)
        step.compute.append(Compute(f.label.code, f.label.partner, start, end))
        step.on_device[f.label.code] = on_device
    step.compute.sort(key=lambda c: (c.start, c.end, c.code))


def closing_of(f: Found, device: Device | None) -> Iterator[Compute]:
    """When a gradient reduction or an optimiser ran: on a GPU its kernels, NCCL's too."""
    if device is None:
        yield Compute(f.label.code, NO_ACTION, f.start, f.end)
        return
    here = device.within(f.start, f.end)
    kernels = np.arange(here.start, here.stop)
    if kernels.size:
        start, end, _ = of_kernels(device, kernels)
        yield Compute(f.label.code, NO_ACTION, start, end)


def _uncover(result: RankSteps, step: RankStep, computed: list[Found], transfers: list[Transfer]) -> None:
    """Takes the waits out of torch's compute labels.

    A receive that ends in a compute label was waited for there. GPipe posts its output inside the label too, behind the
    work.
    """
    ends = sorted(t.end for t in transfers if not t.is_send)
    posts = sorted(t.posted for t in transfers if t.is_send) if result.style is LabelStyle.GPIPE else []
    for f in computed:
        first, last = bisect_right(ends, f.start), bisect_right(ends, f.end)
        start = f.start
        if last > first:
            # In a pair the halves' waits lie around the first half's work: only the first is before all of it.
            start = ends[first] if f.label.partner != NO_ACTION else ends[last - 1]
            result.hidden_waits += 1
        post = bisect_left(posts, start)
        end = posts[post] if post < len(posts) and posts[post] < f.end else f.end
        step.compute.append(Compute(f.label.code, f.label.partner, start, end))


def _attach(
    result: RankSteps, step: RankStep, found: list[Found], computed: list[Found], transfers: list[Transfer]
) -> list[Transfer]:
    """Gives transfers to the labels in which they were posted; what is left is returned.

    A label for posting tells better than gloo's range when a transfer was posted: on a busy machine the range has been
    seen to begin milliseconds after the data had arrived. On a GPU the kernel tells.
    """
    inside_compute = result.style is LabelStyle.GPIPE
    owners = computed if inside_compute else [f for f in found if f.label.role is Role.POST]
    begins = [f.start for f in owners]
    waiting = [f.start for f in computed]
    loose = []
    for transfer in transfers:
        at = bisect_right(begins, transfer.posted) - 1
        if at < 0 or transfer.posted >= owners[at].end:
            loose.append(transfer)
            continue
        code = owners[at].label.code
        if inside_compute:
            code = transfer_of(code, sends=transfer.is_send)
        elif (code_kind(code) in RECV_KINDS) == transfer.is_send:
            loose.append(transfer)
            continue
        if transfer.on_device:
            step.posts[code] = transfer.start
        else:
            step.posts.setdefault(code, transfer.start)
        if transfer.is_send:
            continue
        if transfer.on_device:
            step.arrivals.setdefault(code, Span(waited_from(step, transfer), transfer.end))
        else:
            into = bisect_left(waiting, transfer.end) - 1
            inside = into >= 0 and transfer.end <= computed[into].end
            if result.style is LabelStyle.PIPETRACE:
                waited = waited_from(step, transfer)
            else:
                waited = max(waiting[into], transfer.start) if inside else UNKNOWN
            step.arrivals.setdefault(code, Span(waited, transfer.end))
    return loose


def kind_of(found: Found) -> str:
    label = found.label
    if label.role is not Role.COMPUTE and code_part(label.code):
        return f"{label.role.name} ALL_TO_ALL"
    name = "F&B" if label.partner != NO_ACTION else Kind(code_kind(label.code)).name
    return f"WAIT {name}" if label.role is Role.WAIT else name
