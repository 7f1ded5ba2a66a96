"""What one rank did in each step, from its labels.

Whichever way a trace was labelled, the same comes out: compute with its times, when each transfer was posted, and when
each receive was waited for and there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipetrace.action import NO_ACTION, RECV_KINDS, Kind, code_kind, code_pipe, code_stage
from pipetrace.errors import ActionError
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.labels import UNMARKED_STEP, Label, LabelStyle, Role, read_label, step_number, transfer_of
from pipetrace.trace.load import TraceFile

WHOLE_TRACE = "whole trace"
"""Name of the step where a trace marks none."""


class Span(NamedTuple):
    """Two Unix times in ns."""

    start: int
    end: int


class Compute(NamedTuple):
    """A compute action with its times."""

    code: int
    partner: int
    start: int
    end: int


@dataclass
class RankStep:
    """One step of one rank; Unix times in ns.

    Args:
        compute: In the order of time, each action once.
        posts: When each transfer was posted, by its code.
        arrivals: From when (`UNKNOWN` where nobody waited) to when each receive was waited for, by its code.
        begins: Start of the step's mark, or of its first label.
    """

    begins: int
    compute: list[Compute] = field(default_factory=list)
    posts: dict[int, int] = field(default_factory=dict)
    arrivals: dict[int, Span] = field(default_factory=dict)


@dataclass
class RankSteps:
    """All steps of one rank.

    Args:
        style: How its trace is labelled.
        steps: By name, in the order of time.
        counts: Labels by kind; a pair counts as F&B.
        transfers: gloo's sends and receives that were seen, labelled or not.
        kernels: GPU kernels that were seen.
        doubled: Actions (code and partner) that stood again in a step, of which the first was kept.
        unreadable: Names that begin as labels do, but name no action.
        outside: Labels outside of all marked steps.
        hidden_waits: Compute labels that a wait was cut from.
    """

    style: LabelStyle
    steps: dict[str, RankStep]
    counts: Counter[str] = field(default_factory=Counter)
    transfers: int = 0
    kernels: int = 0
    doubled: dict[tuple[int, int], None] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    outside: int = 0
    hidden_waits: int = 0


class _Found(NamedTuple):
    start: int
    end: int
    label: Label


def read_steps(trace: TraceFile, rank: int) -> RankSteps:
    """Sorts a rank's labels into its steps."""
    found: list[_Found] = []
    receives: list[Span] = []
    sends: list[Span] = []
    marks: dict[str, Span] = {}
    by_hand: list[Span] = []
    unreadable = []
    for event in trace.events:
        name = event.name
        # On a GPU the profiler repeats each label over its kernels; that one's times are the device's.
        if event.cat in ("cpu_op", "kernel", "gpu_user_annotation", "cuda_runtime"):
            continue
        if name in ("gloo:recv", "gloo:send"):
            (receives if name == "gloo:recv" else sends).append(Span(trace.start(event), trace.end(event)))
        elif name == UNMARKED_STEP:
            by_hand.append(Span(trace.start(event), trace.end(event)))
        elif step_number(name) is not None:
            marks.setdefault(name, Span(trace.start(event), trace.end(event)))
        else:
            try:
                label = read_label(name, rank)
            except ActionError:
                unreadable.append(name)
                continue
            if label is not None:
                found.append(_Found(trace.start(event), trace.end(event), label))
    found.sort(key=lambda f: (f.start, f.end, f.label.code, f.label.partner, f.label.role.value))
    receives.sort()
    sends.sort()

    style = _style(trace, found)
    # A user's own "Forward 3" beside the runtime's labels is not GPipe's.
    found = [f for f in found if (f.label.style is LabelStyle.GPIPE) == (style is LabelStyle.GPIPE)]
    windows = _windows(marks, by_hand, found, trace)
    result = RankSteps(style, {}, transfers=len(receives) + len(sends), unreadable=unreadable)
    result.kernels = sum(event.cat == "kernel" for event in trace.events)
    inside = 0
    begins = [f.start for f in found]
    for name, window in windows.items():
        mine = found
        if name != WHOLE_TRACE:
            mine = found[bisect_left(begins, window.start) : bisect_left(begins, window.end)]
        inside += len(mine)
        result.steps[name] = _read_step(result, window, mine, _within(receives, window), _within(sends, window))
    result.outside = max(0, len(found) - inside)
    return result


def _within(spans: list[Span], window: Span) -> list[Span]:
    """Those of sorted spans that begin in a window, its end included."""
    return spans[bisect_left(spans, (window.start,)) : bisect_left(spans, (window.end + 1,))]


def _style(trace: TraceFile, found: list[_Found]) -> LabelStyle:
    styles = {f.label.style for f in found}
    if LabelStyle.PIPETRACE in styles or (trace.pipetrace and LabelStyle.RUNTIME in styles):
        return LabelStyle.PIPETRACE
    return next((style for style in (LabelStyle.RUNTIME, LabelStyle.GPIPE) if style in styles), LabelStyle.NONE)


def _windows(marks: Mapping[str, Span], by_hand: list[Span], found: list[_Found], trace: TraceFile) -> dict[str, Span]:
    if marks:
        return dict(sorted(marks.items(), key=lambda mark: step_number(mark[0]) or 0))
    if by_hand:
        numbered = enumerate(sorted(by_hand))
        return {UNMARKED_STEP if len(by_hand) == 1 else f"{UNMARKED_STEP} {i}": span for i, span in numbered}
    begins = found[0].start if found else min((trace.start(event) for event in trace.events), default=0)
    ends = max((trace.end(event) for event in trace.events), default=begins)
    return {WHOLE_TRACE: Span(begins, ends)}


def _read_step(
    result: RankSteps, window: Span, found: list[_Found], receives: list[Span], sends: list[Span]
) -> RankStep:
    step = RankStep(window.start)
    seen: set[tuple[Role, int]] = set()
    computed: list[_Found] = []
    for f in found:
        role, code, partner = f.label.role, f.label.code, f.label.partner
        result.counts[_kind(f.label)] += 1
        if role is not Role.WAIT and ((role, code) in seen or (role, partner) in seen):
            result.doubled[code, partner] = None
            continue
        seen.update({(role, half) for half in (code, partner) if half != NO_ACTION})
        if role is Role.COMPUTE:
            computed.append(f)
        elif role is Role.POST:
            step.posts[code] = f.start
        elif role is Role.WAIT and code_kind(code) in RECV_KINDS:
            # A rank may turn to something else meanwhile: the last wait of a step ends when it is there.
            step.arrivals[code] = Span(f.start, f.end)
    if result.style is LabelStyle.PIPETRACE:
        step.compute = [Compute(f.label.code, f.label.partner, f.start, f.end) for f in computed]
    else:
        posted = [f for f in found if f.label.role is Role.POST]
        _uncover(result, step, computed, posted, receives, sends)
    return step


def _uncover(
    result: RankSteps,
    step: RankStep,
    computed: list[_Found],
    posted: list[_Found],
    receives: list[Span],
    sends: list[Span],
) -> None:
    """Takes the waits out of torch's compute labels, and finds the transfers behind them.

    gloo's ranges last from posting to the end of waiting. The one that begins in a label for posting, or else in the
    compute label itself, belongs to it; a receive that ends in a compute label was waited for there. A label for
    posting tells better than gloo's range when a transfer was posted: on a busy machine the range has been seen to
    begin milliseconds after the data had arrived.
    """
    ends = sorted(span.end for span in receives)
    posts = [span.start for span in sends] if result.style is LabelStyle.GPIPE else []
    for f in computed:
        first, last = bisect_right(ends, f.start), bisect_right(ends, f.end)
        start = f.start
        if last > first:
            # In a pair the halves' waits lie around the first half's work: only the first is before all of it.
            start = ends[first] if f.label.partner != NO_ACTION else ends[last - 1]
            result.hidden_waits += 1
        # GPipe posts its output inside the label too, behind the work.
        post = bisect_left(posts, start)
        end = posts[post] if post < len(posts) and posts[post] < f.end else f.end
        step.compute.append(Compute(f.label.code, f.label.partner, start, end))
    owners = [(f.start, f.end, f.label.code) for f in posted]
    if result.style is LabelStyle.GPIPE:
        owners = [(f.start, f.end, f.label.code) for f in computed]
    begins = [owner[0] for owner in owners]
    waiting = [f.start for f in computed]
    for spans, are_sends in ((receives, False), (sends, True)):
        for span in spans:
            at = bisect_right(begins, span.start) - 1
            if at < 0 or span.start >= owners[at][1]:
                continue
            code = owners[at][2]
            if result.style is LabelStyle.GPIPE:
                code = transfer_of(code, sends=are_sends)
                step.posts.setdefault(code, span.start)
            elif (code_kind(code) in RECV_KINDS) == are_sends:
                continue
            if not are_sends:
                into = bisect_left(waiting, span.end) - 1
                waited = max(waiting[into], span.start) if into >= 0 and span.end <= computed[into].end else UNKNOWN
                step.arrivals.setdefault(code, Span(waited, span.end))


def _kind(label: Label) -> str:
    name = "F&B" if label.partner != NO_ACTION else Kind(code_kind(label.code)).name
    return f"WAIT {name}" if label.role is Role.WAIT else name


def stages_of(steps: RankSteps) -> set[tuple[int, int]]:
    """(pipe, stage) of everything that a rank computed."""
    codes = (code for step in steps.steps.values() for c in step.compute for code in (c.code, c.partner))
    return {(code_pipe(code), code_stage(code)) for code in codes if code != NO_ACTION}
