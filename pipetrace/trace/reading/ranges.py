"""The ranges of a rank's trace that mean something: labels, and marks of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipetrace.action import BoolArray
from pipetrace.errors import ActionError
from pipetrace.trace.labels import UNMARKED_STEP, Label, Labels, LabelStyle, Role, step_number
from pipetrace.trace.reading.device import KERNELS
from pipetrace.trace.reading.events import Events
from pipetrace.trace.reading.model import WHOLE_TRACE, Span
from pipetrace.trace.reading.nearly import is_nearly_a_label

# On a GPU the profiler repeats each label over its kernels; that one's times are the device's.
NO_RANGES = (
    "cpu_op",
    "kernel",
    "gpu_user_annotation",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "cuda_driver",
    "python_function",
    "Trace",
)


class Found(NamedTuple):
    """A labelled range; Unix times in ns, and on which thread it stands, a place in `Events.threads`."""

    start: int
    end: int
    label: Label
    thread: int = -1


@dataclass(frozen=True)
class Ranges:
    """What a rank's trace says in words.

    Args:
        style: How it is labelled.
        labels: In the order of time.
        windows: Its steps by name, in the order of time.
        unreadable: Names that begin as labels do, but name no action.
        repeated: Labels that stood twice, with the same times on the same thread, and are taken once.
        rows: Which events are labels or marks of steps; shape (n,).
        nearly: Names that are none, but nearly.
    """

    style: LabelStyle
    labels: list[Found]
    windows: Mapping[str, Span]
    unreadable: list[str]
    repeated: int
    rows: BoolArray
    nearly: list[str]

    @property
    def is_compute_alone(self) -> bool:
        """Whether no label says what was sent or received, and none that is torch's holds the wait for it."""
        alone = bool(self.labels) and self.style is not LabelStyle.GPIPE
        return alone and all(f.label.role is Role.COMPUTE for f in self.labels)


def ranges_of(events: Events, rank: int, labels: Labels, *, is_ours: bool) -> Ranges:
    """Finds the labels of a rank, and its steps.

    Args:
        events: Of the rank.
        rank: Which is the stage where a label names none.
        labels: How names are read.
        is_ours: Whether pipetrace ran it.
    """
    by_name: dict[int, Label] = {}
    marks: dict[int, str] = {}
    unreadable: dict[int, str] = {}
    nearly: dict[int, str] = {}
    for at, name in enumerate(events.names):
        if name == UNMARKED_STEP or step_number(name) is not None:
            marks[at] = name
            continue
        try:
            label = labels.read(name, rank)
        except ActionError:
            unreadable[at] = name
            continue
        if label is not None:
            by_name[at] = label
        elif is_nearly_a_label(name):
            nearly[at] = name
    ours = ~events.in_categories(NO_RANGES)
    rows = np.flatnonzero(ours & _among(events, by_name)).tolist()
    whole = {
        (int(events.start[row]), int(events.end[row]), int(events.name[row]), int(events.thread[row])): None
        for row in rows
    }
    found = [Found(start, end, by_name[name], thread) for start, end, name, thread in whole]
    found.sort(key=lambda f: (f.start, f.end, f.label.code, f.label.partner, f.label.role.value))
    style = _style(found, is_ours)
    # A user's own "Forward 3" beside the runtime's labels is not GPipe's.
    found = [f for f in found if (f.label.style is LabelStyle.GPIPE) == (style is LabelStyle.GPIPE)]
    if style is LabelStyle.PATTERN:
        found = [f for f in found if f.label.style is LabelStyle.PATTERN]
    return Ranges(
        style,
        found,
        windows_of(events, ours & _among(events, marks), found),
        [unreadable[int(name)] for name in events.name[ours & _among(events, unreadable)].tolist()],
        len(rows) - len(whole),
        ours & (_among(events, by_name) | _among(events, marks)),
        [nearly[int(name)] for name in events.name[~_on_device(events) & _among(events, nearly)].tolist()],
    )


def _among(events: Events, names: Mapping[int, object]) -> BoolArray:
    return events.of_names([at in names for at in range(len(events.names))])


def _on_device(events: Events) -> BoolArray:
    return events.in_categories([*KERNELS, "gpu_user_annotation"])


def _style(found: list[Found], is_ours: bool) -> LabelStyle:
    styles = {f.label.style for f in found}
    if LabelStyle.PATTERN in styles:
        return LabelStyle.PATTERN
    # torch's runtime labels its posts as it labels compute; who else says PP: labels compute alone.
    torchs = any(f.label.style is LabelStyle.RUNTIME and f.label.role is Role.POST for f in found)
    if LabelStyle.PIPETRACE in styles or (is_ours and LabelStyle.RUNTIME in styles and not torchs):
        return LabelStyle.PIPETRACE
    return next((style for style in (LabelStyle.RUNTIME, LabelStyle.GPIPE) if style in styles), LabelStyle.NONE)


def windows_of(events: Events, is_mark: BoolArray, found: list[Found]) -> dict[str, Span]:
    """The steps that are marked; one from the first label on where none is."""
    spans: dict[str, Span] = {}
    by_hand: dict[Span, None] = {}
    for row in np.flatnonzero(is_mark).tolist():
        name, span = events.names[events.name[row]], Span(int(events.start[row]), int(events.end[row]))
        if name == UNMARKED_STEP:
            by_hand[span] = None
        else:
            spans.setdefault(name, span)
    if spans:
        return dict(sorted(spans.items(), key=lambda mark: step_number(mark[0]) or 0))
    if by_hand:
        numbered = enumerate(sorted(by_hand))
        return {UNMARKED_STEP if len(by_hand) == 1 else f"{UNMARKED_STEP} {i}": span for i, span in numbered}
    begins = found[0].start if found else int(events.start.min()) if len(events) else 0
    return {WHOLE_TRACE: Span(begins, int(events.end.max()) if len(events) else begins)}
