"""Transfers of labelled ranks of which nothing says what they carry: where the stages lie tells from whom they come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pipetrace.action import NO_ACTION, Kind, code_kind, code_pipe, code_stage
from pipetrace.trace.labels import transfer_of
from pipetrace.trace.reading.model import Compute, RankSteps, stages_of
from pipetrace.trace.reading.wanted import Wanted, attach_in_order


def attach_loose(steps: Mapping[int, RankSteps], ranks: int) -> Iterator[str]:
    """Gives transfers to actions in the order of both, on ranks where labels stand for compute alone.

    Args:
        steps: By global rank, replica by replica; are added to.
        ranks: Of a pipeline; where some are not recorded, where their stages lie is not known.

    Returns:
        What could not be told, a line each.
    """
    for replica in sorted({rank // ranks for rank in steps}):
        yield from _attach({rank: of for rank, of in steps.items() if rank // ranks == replica}, ranks)


def _attach(steps: Mapping[int, RankSteps], ranks: int) -> Iterator[str]:
    holders = {stage: rank for rank, of in steps.items() for stage in stages_of(of)}
    for rank, of in steps.items():
        untold: dict[str, int] = defaultdict(int)
        for step in of.steps.values():
            # Where no compute is known either, that is told, and this follows from it.
            if not step.loose or step.arrivals or not step.compute:
                continue
            if len(steps) < ranks:
                reason: str | None = "where the stages of ranks that were not recorded lie is not known"
            else:
                reason = attach_in_order(step, list(_wanted(step.compute, rank, holders)), step.loose)
            if reason is not None:
                untold[reason] += len(step.loose)
        for reason, count in untold.items():
            yield f"rank {rank}: what {count} sends and receives carry could not be told: {reason}"


def _wanted(compute: Sequence[Compute], rank: int, holders: Mapping[tuple[int, int], int]) -> Iterator[Wanted]:
    """A rank's list, from what it was seen to do."""
    for c in compute:
        for code in (c.code, c.partner):
            if code != NO_ACTION:
                yield _of(code, rank, holders)


def _of(code: int, rank: int, holders: Mapping[tuple[int, int], int]) -> Wanted:
    if code_kind(code) == Kind.W:
        return Wanted(code)
    pipe, stage = code_pipe(code), code_stage(code)
    step = 1 if code_kind(code) == Kind.F else -1
    source, destination = holders.get((pipe, stage - step), rank), holders.get((pipe, stage + step), rank)
    none = NO_ACTION, -1
    receive = (transfer_of(code, sends=False), source) if source != rank else none
    send = (transfer_of(code, sends=True), destination) if destination != rank else none
    return Wanted(code, *receive, *send)
