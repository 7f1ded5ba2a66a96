"""A trace of one process that ran all ranks of a pipeline on one device.

Every label stands in it, whichever rank it is of, and the run's own metadata says which rank holds which stage. On a
GPU the host gives work to the ranks' streams one after the other, so that a kernel belongs to the label in which it was
launched; on a CPU each stream is a thread, and a label's times are its own. A transfer is a copy on the sender's
communication stream, and lasts as long as that.

Replicas label alike. Whose a label is tells the stream: that of the first kernel launched in it, or the thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipetrace.action import NO_ACTION, SEND_KINDS, code_kind, code_part, code_pipe, code_stage
from pipetrace.errors import TraceError
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.labels import Labels, LabelStyle, Role, receiver_of
from pipetrace.trace.load import TraceFile
from pipetrace.trace.rank_steps import CLOSING_KINDS, closing_of, from_kernels, kind_of
from pipetrace.trace.reading.device import Device, device_of, of_kernels
from pipetrace.trace.reading.model import WHOLE_TRACE, Compute, RankStep, RankSteps, Span
from pipetrace.trace.reading.ranges import Found, ranges_of


def is_shared(trace: TraceFile) -> bool:
    """Whether a trace holds all ranks of a run."""
    return bool(trace.pipetrace.get("streams"))


def shared_steps(trace: TraceFile, labels: Labels) -> dict[int, RankSteps]:
    """What each rank did in each step, by replica × pipeline ranks + pipeline rank.

    Raises:
        TraceError: The metadata does not say which rank holds which stage.
    """
    rank_of = _rank_of(trace)
    events = trace.events
    device = device_of(events)
    ranges = ranges_of(events, 0, labels, is_ours=True)
    ranks = max(rank_of.values()) + 1
    whose = _Whose(trace, device, ranks)
    found = {place: RankSteps(LabelStyle.PIPETRACE, {}) for place in range(ranks * whose.replicas)}
    first = found[min(found)]
    first.unreadable, first.repeated = ranges.unreadable, ranges.repeated
    if device is not None:
        first.kernels, first.unlaunched = device.start.size, device.unlaunched
    begins = [f.start for f in ranges.labels]
    inside = 0
    for name, window in ranges.windows.items():
        mine = ranges.labels
        if name != WHOLE_TRACE:
            mine = mine[bisect_left(begins, window.start) : bisect_left(begins, window.end)]
        inside += len(mine)
        for replica in range(whose.replicas):
            held = {part: replica * ranks + rank for part, rank in rank_of.items()}
            its = mine if whose.replicas == 1 else [f for f in mine if whose.replica(f) == replica]
            of_replica = {place: of for place, of in found.items() if place // ranks == replica}
            for place, step in _read_step(of_replica, held, window, its, device).items():
                found[place].steps[name] = step
    first.outside = len(ranges.labels) - inside
    return found


class _Whose:
    """Which replica a label is of.

    Args:
        trace: Whose metadata names the streams.
        device: Its kernels.
        ranks: Pipeline ranks of a replica.

    Raises:
        TraceError: The metadata says of a stream what cannot be.
    """

    def __init__(self, trace: TraceFile, device: Device | None, ranks: int) -> None:
        self._device = device
        self._threads = [thread for _, thread in trace.events.threads]
        streams: Any = trace.pipetrace.get("streams")
        try:
            self._replica_of = {str(of["stream"]): int(of["rank"]) // ranks for of in streams}
        except (TypeError, ValueError, KeyError, OverflowError):
            self._replica_of = {}
        found = set(self._replica_of.values())
        if not found or found != set(range(len(found))):
            raise TraceError(
                f"{trace.path}: all ranks ran in one process, but whose its streams are is not said",
                "record the run again",
            )
        self.replicas = len(found)

    def replica(self, of: Found) -> int | None:
        """The replica; None where nothing tells."""
        if self._device is None:
            return self._replica_of.get(self._threads[of.thread])
        here = self._device.within(of.start, of.end)
        streams = self._device.stream[here]
        return self._replica_of.get(str(int(streams[0]))) if streams.size else None


def _rank_of(trace: TraceFile) -> dict[tuple[int, int], int]:
    """Which rank holds each (pipe, stage)."""
    held: Any = trace.pipetrace.get("holds")
    try:
        rank_of = {(int(pipe), int(stage)): rank for rank, parts in enumerate(held) for pipe, stage in parts}
    except (TypeError, ValueError):
        rank_of = {}
    if not rank_of:
        raise TraceError(
            f"{trace.path}: all ranks ran in one process, but which rank holds which stage is not said",
            "record the run again",
        )
    return rank_of


def _read_step(
    found: Mapping[int, RankSteps],
    rank_of: Mapping[tuple[int, int], int],
    window: Span,
    labels: list[Found],
    device: Device | None,
) -> dict[int, RankStep]:
    steps = {rank: RankStep(window.start) for rank in found}
    computed: dict[int, list[Found]] = {rank: [] for rank in found}
    seen: set[tuple[Role, int]] = set()
    for f in labels:
        role, code = f.label.role, f.label.code
        rank = rank_of.get((code_pipe(code), code_stage(code)))
        if rank is None:
            continue
        found[rank].counts[kind_of(f)] += 1
        if (role, code) in seen:
            found[rank].doubled.append((code, f.label.partner))
            continue
        seen.update({(role, half) for half in (code, f.label.partner) if half != NO_ACTION})
        if role is Role.COMPUTE:
            computed[rank].append(f)
        elif role is Role.WHOLE_STAGE and code_kind(code) in CLOSING_KINDS:
            steps[rank].closing += closing_of(f, device)
        elif role is Role.POST and code_part(code):
            # A rank has come to an all-to-all. When a GPU's stream has, no kernel shows.
            if device is None:
                steps[rank].posts[code] = f.start
        elif role is Role.POST and code_kind(code) in SEND_KINDS:
            receive = receiver_of(code)
            to = rank_of.get((code_pipe(receive), code_stage(receive)))
            copy = _copied(f, device)
            if copy is None or to is None:
                continue
            found[rank].transfers += 1
            steps[rank].posts[code] = copy.start
            steps[to].arrivals[receive] = Span(UNKNOWN, copy.end)
    for rank, step in steps.items():
        if device is not None:
            from_kernels(found[rank], step, computed[rank], device, is_ours=True)
        else:
            step.compute = [Compute(f.label.code, f.label.partner, f.start, f.end) for f in computed[rank]]
    return steps


def _copied(label: Found, device: Device | None) -> Span | None:
    """When a copy ran; None where the GPU ran none for it."""
    if device is None:
        return Span(label.start, label.end)
    here = device.within(label.start, label.end)
    kernels = np.arange(here.start, here.stop)
    if not kernels.size:
        return None
    start, end, _ = of_kernels(device, kernels)
    return Span(start, end)
