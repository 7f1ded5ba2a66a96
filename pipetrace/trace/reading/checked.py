"""What a reduced file says of a rank, looked at number by number: it may have been changed, or written by hand.

A number that cannot be (a kind that is none, a tile that ends before it begins, kernels that outlast their tile) is
named; what is merely unlikely is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from pipetrace.action import (
    ALL_TO_ALL_PARTS,
    COMPUTE_KINDS,
    NO_ACTION,
    RECV_KINDS,
    TRANSFER_KINDS,
    Action,
    Kind,
    code_text,
)
from pipetrace.errors import ActionError
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.places import MOST_RANKS
from pipetrace.trace.reading.events import EARLIEST, LATEST
from pipetrace.trace.reading.model import RankStep, RankSteps

_MOST_COUNT = 1 << 62


def wrong_in(steps: RankSteps) -> str | None:
    """The first thing in a rank's steps that cannot be, in words; None where there is none."""
    return next(_wrong(steps), None)


def _wrong(steps: RankSteps) -> Iterator[str]:
    for name, step in steps.steps.items():
        yield from (f"{name}: {what}" for what in _wrong_in_step(step))
    counted = {
        "transfers": steps.transfers,
        "kernels": steps.kernels,
        "outside": steps.outside,
        "hidden_waits": steps.hidden_waits,
        "unlaunched": steps.unlaunched,
        "crossing": steps.crossing,
        "repeated": steps.repeated,
        **{f"count of {kind}": count for kind, count in steps.counts.items()},
        **steps.doubts,
        **{f"peak memory of {device}": count for device, count in steps.peak_memory.items()},
    }
    for what, count in counted.items():
        if not 0 <= count < _MOST_COUNT:
            yield f"{what} is {count}"
    for code, partner in steps.doubled:
        yield from _no_tile(code, partner)
    for code in steps.without_kernels:
        yield from _no_action(code)
    if (match := steps.match) is not None:
        for what, share in (("alike", match.alike), ("outside", match.outside)):
            if not (isfinite(share) and 0 <= share <= 1):
                yield f"the share {what} of its match is {share}"
        if match.actions < 0:
            yield f"its match has {match.actions} actions"


def _wrong_in_step(step: RankStep) -> Iterator[str]:
    times = [step.begins, *step.posts.values(), *step.idle_for.values()]
    times += [time for c in (*step.compute, *step.closing) for time in (c.start, c.end)]
    times += [time for span in step.arrivals.values() for time in span if time != UNKNOWN]
    times += [time for t in step.loose for time in (t.posted, t.start, t.end)]
    for time in times:
        if not EARLIEST <= time <= LATEST:
            yield f"{time} is no time"
    yield from _wrong_compute(step)
    yield from _wrong_beside(step)
    yield from _wrong_transfers(step)


def _wrong_compute(step: RankStep) -> Iterator[str]:
    seen: set[int] = set()
    lasted: dict[int, int] = {}
    for c in step.compute:
        yield from _no_tile(c.code, c.partner)
        if c.end < c.start:
            yield f"{code_text(c.code)} ends {c.start - c.end} ns before it begins"
        for half in (c.code, c.partner):
            if half in seen:
                yield f"{code_text(half)} stands twice"
            if half != NO_ACTION:
                seen.add(half)
        lasted[c.code] = c.end - c.start
    for code, of in step.on_device.items():
        if code not in lasted:
            yield f"there are kernels of {code}, which is no action of it"
        elif of.running + of.gaps != lasted[code]:
            yield f"the kernels of {code_text(code)} do not last as long as it does"
        elif min(of) < 0 or not of.kernels or max(of) > _MOST_COUNT:
            yield f"the kernels of {code_text(code)} are {tuple(of)}"


def _wrong_beside(step: RankStep) -> Iterator[str]:
    """What is told of compute beside its tiles."""
    lasted = {c.code: c.end - c.start for c in step.compute}
    for code, time in step.recomputed.items():
        if not 0 <= time <= lasted.get(code, -1):
            yield f"a forward of {time} ns was run again in {code}, which did not last as long"
    for c in step.closing:
        yield from _no_action(c.code, frozenset({Kind.REDUCE_GRAD, Kind.OPTIM}))
        if c.end < c.start or c.partner != NO_ACTION:
            yield f"{code_text(c.code)} is {tuple(c)}"


def _wrong_transfers(step: RankStep) -> Iterator[str]:
    for code in step.posts:
        yield from _no_action(code, TRANSFER_KINDS, or_all_to_all=True)
    for code, span in step.arrivals.items():
        yield from _no_action(code, RECV_KINDS)
        if span.start != UNKNOWN and span.end < span.start:
            yield f"{code_text(code)} ends before it was waited for"
        if span.end == UNKNOWN:
            yield f"{code_text(code)} has no end"
    for code in step.idle_for:
        yield from _no_action(code, frozenset(), or_all_to_all=True)
    for t in step.loose:
        if t.end < t.start or (t.peer is not None and not 0 <= t.peer < MOST_RANKS):
            yield f"a transfer is {tuple(t)}"


def _no_tile(code: int, partner: int) -> Iterator[str]:
    yield from _no_action(code, COMPUTE_KINDS)
    if partner != NO_ACTION:
        yield from _no_action(code, frozenset({Kind.F}))
        yield from _no_action(partner, frozenset({Kind.B, Kind.I}))


def _no_action(code: int, kinds: frozenset[Kind] | None = None, *, or_all_to_all: bool = False) -> Iterator[str]:
    """What is wrong with the code of an action that is to be of some kinds."""
    try:
        action = Action.from_code(code)
    except ActionError as error:
        yield error.message
        return
    exchanges = or_all_to_all and action.part in ALL_TO_ALL_PARTS
    if kinds is not None and action.kind not in kinds and not exchanges:
        yield f"{action} stands where no {action.kind.name} can stand"
