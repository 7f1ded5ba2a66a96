"""What in a rank's events contradicts itself, so that a changed number or name does not change figures unseen.

A profiler writes the events of a thread in order, its calls lie within each other or apart, and a stream runs one
kernel after the other. Where nearly all of a trace keeps to that and a few events do not, these few are told. A digit
that is wrong and yet leaves all of this as it was cannot be told from a right one by anybody.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipetrace.action import BoolArray, IntArray
from pipetrace.trace.reading.device import KERNELS, LAUNCHES, Device
from pipetrace.trace.reading.events import NONE, Events
from pipetrace.trace.reading.nearly import is_damaged_one_of

DISORDER = "events lie before one that stands above them in the file, where all others are in order: a time is wrong"
POSTS = "sends or receives have no range of gloo's, or the ranges no operation: a name is wrong"
CROSSING = "operations and labels cross others on their thread, where all others lie within each other: a time is wrong"
OVERLAP = "kernels begin before the one before them on their stream has ended, as no others do: a time is wrong"
BARE = "events have no category, process or thread, as all others have: a key is wrong"
NO_KERNEL = "launches have no kernel, as all others have"
CATEGORY = "events have a category that is nearly a known one, and were not taken for that"

_CATEGORIES = (*KERNELS, *LAUNCHES, "cpu_op", "user_annotation", "gpu_user_annotation", "python_function")
_FEWEST = 8
"""Events of a thread from which on there is such a thing as its habit."""
_RARE = 50
"""One in so many may be an exception; where more are, the trace was just not written so."""


def doubts_of(events: Events, device: Device | None, labels: BoolArray) -> dict[str, int]:
    """How often what is out of a rank's own habits.

    Args:
        events: Of the rank.
        device: Its kernels.
        labels: Which events are labels or marks of steps; shape (n,).
    """
    is_kernel = events.in_categories(KERNELS)
    calls = (events.in_categories(["cpu_op"]) & ~_called_after_a_transfer(events)) | labels
    found = dict.fromkeys((DISORDER, CROSSING, OVERLAP), 0)
    of_python = events.in_categories(["python_function"])
    for chosen in (of_python, ~of_python):  # with_stack: torch writes all of a thread's Python behind its operations
        for rows in _by_thread(events, chosen):
            found[DISORDER] += _rare(np.diff(events.start[rows]) < 0, rows.size)
    if not _whole_micros(events):
        for rows in _by_thread(events, calls):
            found[CROSSING] += _rare(_crosses(events.start[rows], events.end[rows]), rows.size)
    for rows in _by_thread(events, is_kernel):
        order = rows[np.argsort(events.start[rows], kind="stable")]
        found[OVERLAP] += _rare(events.start[order][1:] < events.end[order][:-1], rows.size)
    found[POSTS] = _without_other(events)
    bare = events.in_categories([""]) | events.on_threads(["" in thread for thread in events.threads])
    found[BARE] = _rare(bare, len(events))
    found[CATEGORY] = int(
        events.in_categories([of for of in events.categories if is_damaged_one_of(of, _CATEGORIES)]).sum()
    )
    if device is not None:
        launches = events.in_categories(LAUNCHES) & events.of_names(["Launch" in name for name in events.names])
        launches &= events.correlation != NONE
        found[NO_KERNEL] = _rare(
            ~np.isin(events.correlation[launches], events.correlation[is_kernel]), int(launches.sum())
        )
    return {what: count for what, count in found.items() if count}


def _rare(which: BoolArray, of: int) -> int:
    """How many there are, if they are exceptions."""
    return _few(int(which.sum()), of)


def _few(count: int, of: int) -> int:
    return count if of >= _FEWEST and count <= max(2, of // _RARE) else 0


def _without_other(events: Events) -> int:
    """Where torch records both, each send and receive is an operation that posts it and a range until it is over."""
    sends, receives, sent, received = (
        int(events.called(names).sum())
        for names in (("c10d::send", "c10d::isend"), ("c10d::recv_", "c10d::irecv_"), ("gloo:send",), ("gloo:recv",))
    )
    if not sends + receives or not sent + received:
        return 0  # only one of both was recorded
    return _few(abs(sends - sent) + abs(receives - received), sends + receives + sent + received)


def _by_thread(events: Events, chosen: BoolArray) -> Iterator[IntArray]:
    """The rows that are chosen, thread by thread, in the order of the file."""
    rows = np.flatnonzero(chosen)
    thread = events.thread[rows]
    if not rows.size:
        return
    order = np.argsort(thread, kind="stable")
    yield from np.split(rows[order], np.flatnonzero(np.diff(thread[order])) + 1)


def _called_after_a_transfer(events: Events) -> BoolArray:
    """gloo's ranges last until somebody waits for them, whatever runs meanwhile."""
    return events.of_names([name.startswith(("gloo:", "nccl:")) for name in events.names])


def _whole_micros(events: Events) -> bool:
    """Whether times were rounded to µs, as older profilers did: then a call may end behind its caller."""
    return not (events.start % 1000).any() and not (events.end % 1000).any()


def _crosses(start: IntArray, end: IntArray) -> BoolArray:
    """Which ranges have more begin in them than end, or fewer: never, where all lie within each other or apart."""
    if not (end > start).all():
        long = end > start
        start, end = start[long], end[long]
    if not (start[1:] > start[:-1]).all():
        order = np.lexsort((-end, start))
        start, end = start[order], end[order]
    if (start[1:] >= end[:-1]).all():
        return np.zeros(start.size, dtype=np.bool_)
    place = np.arange(start.size)
    begun = np.searchsorted(start, end, side="left") - place - 1
    # Of those that end at once the one that began last ends first.
    closing = place[::-1][np.argsort(end[::-1], kind="stable")]
    closed = np.empty_like(place)
    closed[closing] = place
    ended = closed - np.searchsorted(end[closing], start, side="right")
    which: BoolArray = begun != ended
    return which
