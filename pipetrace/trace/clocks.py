"""Whether times of different ranks can be compared, and how far off they may be.

Ranks of one machine share a clock. Elsewhere what travels tells: nothing arrives before it was made, so that each
message from one rank to another bounds by how much their clocks differ, from above one way and from below the other
way. Between the bounds the middle is taken, half their distance is the uncertainty. Without messages both ways, or
where they contradict each other, ranks are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipetrace.shown import printable
from pipetrace.timeline import UNKNOWN
from pipetrace.trace.labels import sender_of
from pipetrace.trace.rank_reading import RankReading
from pipetrace.trace.reading.model import Compute, RankStep, RankSteps, Span, sent

_MOST_STEPS_APART = 10
NOT_ALIGNED = "ranks' clocks were not aligned: compare within ranks only"


@dataclass(frozen=True)
class Clocks:
    """What is known of the ranks' clocks.

    Args:
        common: Whether times of different ranks can be compared.
        notes: Why that is believed, a line each.
        offsets: ns that are added to each rank's times; empty where they are left as they are.
        uncertainty: ns by which times of two ranks may be off, at most; 0 where they share a clock.
        one_boot: Whether all ranks ran on one machine that was not started anew: there their clocks cannot differ.
    """

    common: bool
    notes: tuple[str, ...] = ()
    offsets: Mapping[int, int] = field(default_factory=dict)
    uncertainty: int = 0
    one_boot: bool = False


def clocks_of(traces: Mapping[int, RankReading], steps: Mapping[int, RankSteps], ranks: int) -> Clocks:
    """Whether all ranks read one clock, and why that is believed.

    Args:
        traces: By place, replica × p + pipeline rank.
        steps: What each rank did.
        ranks: Of a replica.
    """
    if len(traces) == 1:
        return Clocks(True)
    clocks = [trace.pipetrace.get("clock") for trace in traces.values()]
    if all(isinstance(clock, dict) for clock in clocks):
        told = [(clock.get("host"), clock.get("boot_id")) for clock in clocks if isinstance(clock, dict)]
        host, boot = told[0]
        if isinstance(host, str) and isinstance(boot, str) and boot and all(one == told[0] for one in told):
            why = f"all ranks ran on one machine ({printable(host)}, one boot id), so they share one clock"
            shared = _shared(steps, why)
            return replace(shared, one_boot=shared.common)
    else:
        hosts = {trace.host for trace in traces.values()}
        if len(hosts) == 1 and (host := next(iter(hosts))):
            return _shared(steps, f"all ranks name the host {host!r}, so they are taken to share one clock")
    parts = [
        _aligned({rank: of for rank, of in steps.items() if rank // ranks == replica})
        for replica in sorted({rank // ranks for rank in steps})
    ]
    if len(parts) == 1:
        return parts[0]
    return Clocks(
        all(part.common for part in parts),
        (*dict.fromkeys(note for part in parts for note in part.notes), "clocks of replicas were not aligned"),
        {rank: by for part in parts for rank, by in part.offsets.items()},
        max(part.uncertainty for part in parts),
    )


def _shared(steps: Mapping[int, RankSteps], why: str) -> Clocks:
    apart = _apart(steps)
    return Clocks(True, (why,)) if apart is None else Clocks(False, (apart,))


def _apart(steps: Mapping[int, RankSteps]) -> str | None:
    """What is wrong where ranks did one step at times that have nothing to do with each other."""
    for name in {name: None for of in steps.values() for name in of.steps}:
        spans = {
            rank: Span(min(c.start for c in compute), max(c.end for c in compute))
            for rank, of in steps.items()
            if name in of.steps and (compute := of.steps[name].compute)
        }
        if not spans:
            continue
        longest = max(span.end - span.start for span in spans.values())
        first = min(spans, key=lambda rank: spans[rank].end)
        last = max(spans, key=lambda rank: spans[rank].start)
        between = spans[last].start - spans[first].end
        if between > _MOST_STEPS_APART * longest:
            return (
                f"{NOT_ALIGNED} ({name} of rank {last} lies {between / 1e9:,.3f} s behind that of rank {first}, and "
                f"took {longest / 1e9:,.3f} s)"
            )
    return None


def _aligned(steps: Mapping[int, RankSteps]) -> Clocks:
    """Clocks from messages, rank after rank from the first one on."""
    # least[a, b]: the least time, by the two clocks, from a thing's being made on a to its being there on b.
    least: dict[tuple[int, int], int] = {}
    pairs = 0
    for name in {name for of in steps.values() for name in of.steps}:
        made = _made({rank: of.steps[name] for rank, of in steps.items() if name in of.steps})
        for rank, of in steps.items():
            for code, span in of.steps[name].arrivals.items() if name in of.steps else ():
                sender = made.get(sender_of(code))
                if sender is not None and sender[0] != rank:
                    pairs += 1
                    key = sender[0], rank
                    least[key] = min(least.get(key, span.end - sender[1]), span.end - sender[1])
    near: dict[int, list[int]] = defaultdict(list)
    for a, b in least:
        if (b, a) in least:
            near[a].append(b)
    first = min(steps)
    offsets, doubt = {first: 0}, {first: 0}
    queue = [first]
    for rank in queue:
        for other in near[rank]:
            # b's clock is ahead of a's by at most least[a, b] and at least -least[b, a].
            most, at_least = least[rank, other], -least[other, rank]
            if most < at_least:
                return Clocks(
                    False,
                    (
                        f"{NOT_ALIGNED} (messages between ranks {rank} and {other} contradict each other by "
                        f"{(at_least - most) / 1000:,.1f} µs: their clocks drift, or labels are wrong)",
                    ),
                )
            if other not in offsets:
                offsets[other] = offsets[rank] - (most + at_least) // 2
                doubt[other] = doubt[rank] + (most - at_least + 1) // 2
                queue.append(other)
    if set(offsets) != set(steps):
        why = "no messages both ways were recorded that could tell them"
        return Clocks(False, (f"{NOT_ALIGNED} ({why})",))
    # Between two ranks lie the doubts from both to the first.
    uncertainty = sum(sorted(doubt.values())[-2:]) if len(near[first]) > 1 else max(doubt.values())
    moved = max(map(abs, offsets.values()))
    return Clocks(
        True,
        (
            f"ranks' clocks were aligned by {pairs} messages, none of which may arrive before it was made: they were "
            f"moved by up to {moved / 1000:,.1f} µs, and may still be off by {uncertainty / 1000:,.1f} µs",
        ),
        offsets,
        uncertainty,
    )


def _made(steps: Mapping[int, RankStep]) -> dict[int, tuple[int, int]]:
    """When each thing that was sent was made: (rank, Unix ns) by the send's code."""
    made = {}
    for rank, step in steps.items():
        for code, at in sent(step):
            made[code] = rank, at
    return made


def shifted(steps: RankSteps, by: int) -> None:
    """Moves all times of a rank by some ns."""

    def later(time: int) -> int:
        return time if time == UNKNOWN else time + by

    for step in steps.steps.values():
        step.begins += by
        step.compute = [Compute(c.code, c.partner, c.start + by, c.end + by) for c in step.compute]
        step.closing = [Compute(c.code, c.partner, c.start + by, c.end + by) for c in step.closing]
        step.posts = {code: later(at) for code, at in step.posts.items()}
        step.arrivals = {code: Span(later(span.start), later(span.end)) for code, span in step.arrivals.items()}
