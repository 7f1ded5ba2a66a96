"""What one rank did, step by step: what every way of reading a trace comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pipetrace.action import NO_ACTION, SEND_KINDS, Kind, code_kind, code_pipe, code_stage
from pipetrace.trace.labels import LabelStyle, transfer_of
from pipetrace.trace.reading.device import OnDevice
from pipetrace.trace.reading.p2p import Transfer

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
        posts: When each transfer was posted, by its code; on a GPU when its kernel began.
        arrivals: From when (`UNKNOWN` where nobody waited) to when each receive was waited for, by its code.
        idle_for: When compute began to stand idle for each all-to-all, by its code; until that ends.
        begins: Start of the step's mark, or of its first label.
        on_device: What the kernels of each action did, by its code; empty where there are none.
        loose: Transfers of which it is not known yet what they carry.
        recomputed: ns that each backward's forward took that was run again in it, by its code.
        closing: What concerns a whole stage and was timed, gradient reduction and optimiser, each once.
    """

    begins: int
    compute: list[Compute] = field(default_factory=list)
    posts: dict[int, int] = field(default_factory=dict)
    arrivals: dict[int, Span] = field(default_factory=dict)
    idle_for: dict[int, int] = field(default_factory=dict)
    on_device: dict[int, OnDevice] = field(default_factory=dict)
    loose: list[Transfer] = field(default_factory=list)
    recomputed: dict[int, int] = field(default_factory=dict)
    closing: list[Compute] = field(default_factory=list)


@dataclass(frozen=True)
class Match:
    """How a rank's compute was matched with the order of a schedule.

    Args:
        schedule: Its name.
        actions: How many were matched, over all steps.
        alike: Share of operations that are the same in all actions of one kind and stage, 0 … 1.
        outside: Share of the compute time that belongs to no action, 0 … 1.
    """

    schedule: str
    actions: int
    alike: float
    outside: float

    @property
    def confidence(self) -> float:
        """Share of the compute time that is explained, by operations that repeat as the order says; 0 … 1."""
        return self.alike * (1 - self.outside)


@dataclass
class RankSteps:
    """All steps of one rank.

    Args:
        style: How its trace is labelled.
        steps: By name, in the order of time.
        counts: Labels by kind; a pair counts as F&B.
        transfers: Sends and receives that were seen, labelled or not.
        kernels: GPU kernels that were seen.
        doubled: Actions (code and partner) that stood again in a step, of which the first was kept.
        unreadable: Names that begin as labels do, but name no action.
        nearly: Names that are nearly those of labels and transfers.
        outside: Labels outside of all marked steps.
        hidden_waits: Compute labels that a wait was cut from.
        without_kernels: Labelled actions for which no kernel was launched, on a rank that has kernels.
        unlaunched: Kernels whose launch was not recorded.
        crossing: Compute ranges that overlap one before them.
        repeated: Events that stood twice and were read once.
        match: How compute was matched where nothing is labelled.
        doubts: How often what contradicts the rest of the trace, see `doubts_of`.
        peak_memory: Most bytes allocated, by device, over the whole trace.
        tells_recompute: Whether a forward that is run again in a backward would be seen.
    """

    style: LabelStyle
    steps: dict[str, RankStep]
    counts: dict[str, int] = field(default_factory=Counter)
    transfers: int = 0
    kernels: int = 0
    doubled: list[tuple[int, int]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    nearly: list[str] = field(default_factory=list)
    outside: int = 0
    hidden_waits: int = 0
    without_kernels: list[int] = field(default_factory=list)
    unlaunched: int = 0
    crossing: int = 0
    repeated: int = 0
    match: Match | None = None
    doubts: dict[str, int] = field(default_factory=dict)
    peak_memory: dict[str, int] = field(default_factory=dict)
    tells_recompute: bool = False


def stages_of(steps: RankSteps) -> set[tuple[int, int]]:
    """(pipe, stage) of everything that a rank computed."""
    codes = (code for step in steps.steps.values() for c in step.compute for code in (c.code, c.partner))
    return {(code_pipe(code), code_stage(code)) for code in codes if code != NO_ACTION}


def sent(step: RankStep) -> Iterator[tuple[int, int]]:
    """When data was ready to be sent: as the send was posted, or, on a GPU that records none, when it was made."""
    if step.on_device:
        for c in step.compute:
            for code in (c.code, c.partner):
                if code != NO_ACTION and code_kind(code) != Kind.W:
                    yield transfer_of(code, sends=True), c.end
    for code, at in step.posts.items():
        if code_kind(code) in SEND_KINDS:
            yield code, at


def device_sums(steps: RankSteps) -> dict[str, OnDevice]:
    """What the kernels of all actions of a kind did, summed over all steps, by the kind's letter."""
    sums: dict[str, OnDevice] = {}
    for step in steps.steps.values():
        for code, of in step.on_device.items():
            name = Kind(code_kind(code)).name
            sums[name] = OnDevice(*map(sum, zip(sums.get(name, OnDevice(0, 0, 0, 0)), of, strict=True)))
    return dict(sorted(sums.items()))
