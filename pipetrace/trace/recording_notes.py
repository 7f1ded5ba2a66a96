"""What to say about a recording: what it lacks, and what was assumed in reading it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipetrace.action import NO_ACTION, Kind, code_kind, code_microbatch, code_pipe, code_stage, code_text
from pipetrace.shown import shown
from pipetrace.trace.assemble import Lost
from pipetrace.trace.labels import LabelStyle
from pipetrace.trace.reading.model import RankStep, RankSteps

_MOST_LISTED = 8


def missing_lines(
    ranks: int, steps: Mapping[int, RankSteps], names: Sequence[str], lost: Lost, unmatched: Iterable[str]
) -> Iterator[str]:
    """What could not be found, a line each."""
    absent = [rank for rank in range(ranks) if rank not in steps]
    if absent:
        yield f"{ranks} ranks ran, but there is no trace of {_ranks(absent)}"
    silent = [rank for rank, of in steps.items() if of.style is LabelStyle.NONE and of.match is None]
    if silent:
        yield (
            f"no action is labelled on {_ranks(silent)}, so compute cannot be told apart: name the schedule with "
            "--schedule, or the labels with --label"
        )
        transfers, kernels = (sum(getattr(steps[rank], what) for rank in silent) for what in ("transfers", "kernels"))
        if transfers:
            yield f"{transfers} sends and receives were seen there, but not what they carried or to whom"
        if kernels:
            yield f"{kernels} GPU kernels were seen there, but not which action started them"
    yield from unmatched
    for rank, of in steps.items():
        for name in names:
            if name in of.steps:
                where = f"{name}, rank {rank}" if len(names) > 1 else f"rank {rank}"
                yield from (f"{where}, {line}" for line in _incomplete(of.steps[name]))
    for rank in sorted({rank for rank, _ in lost.never_waited}):
        codes = [code_text(code) for of_rank, code in sorted(lost.never_waited) if of_rank == rank]
        yield f"rank {rank} posted {_some(codes)}, but when the data was there is not in its trace"


def note_lines(steps: Mapping[int, RankSteps], lost: Lost) -> Iterator[str]:
    """What was assumed or lost, a line each."""
    styles = {of.style for of in steps.values()}
    matched = {rank: of.match for rank, of in steps.items() if of.match is not None}
    if matched:
        least = min(matched.values(), key=lambda match: match.confidence)
        yield (
            f"nothing is labelled on {_ranks(list(matched))}: what they computed was matched with the order of "
            f"{least.schedule}, {sum(match.actions for match in matched.values())} actions, confidence "
            f"{least.confidence:.0%} (on the worst rank {least.alike:.1%} of the operations repeat as that order says, "
            f"and {least.outside:.1%} of the compute time lies between its actions)"
        )
    if any(of.kernels for of in steps.values()):
        yield "times are those of GPU kernels: a tile runs from its first kernel's start to its last one's end"
    waits = any(kind.startswith("WAIT") for of in steps.values() for kind in of.counts)
    if LabelStyle.PIPETRACE in styles and waits and not all(of.kernels for of in steps.values()):
        yield "a receive ends when its wait ends: where that wait was short, the data was there earlier"
    hidden = sum(of.hidden_waits for of in steps.values())
    if hidden:
        yield (
            f"torch waits for receives inside its compute labels: {hidden} of them are taken to start "
            "when the wait in them had ended"
        )
    if LabelStyle.GPIPE in styles:
        yield (
            "torch's GPipe names no stage, so rank r's is taken to be stage r; it posts its sends inside its compute "
            "labels, which are taken to end there, up to some milliseconds late on a busy machine"
        )
    first_stage = next((rank for rank, of in steps.items() if _has_split_first_stage(of)), None)
    if first_stage is not None:
        yield (
            f"in torch's runtime the I of stage 0 (rank {first_stage}) does nothing and its W is the whole backward: "
            "do not compare them one by one"
        )
    for rank, of in steps.items():
        yield from _of_rank(rank, of)
    if lost.no_receive:
        yield f"{lost.no_receive} sends are shown where they were posted, as when they arrived is not known"
    if lost.late_posts:
        yield f"{lost.late_posts} sends seem to be posted after they had arrived, so when they were is left open"
    if lost.backwards:
        yield f"{lost.backwards} actions seemed to end before they began, and are shown with no length"


def _of_rank(rank: int, of: RankSteps) -> Iterator[str]:
    """What was mended or lost on one rank, a line each."""
    for count, what in (
        (of.repeated, "events stand twice in its trace and were read once"),
        (of.crossing, "actions begin before the one before them has ended"),
        (of.unlaunched, "GPU kernels whose launch was not recorded belong to no action"),
        (of.outside, "labels lie outside of all steps and were left out"),
        *((count, what) for what, count in of.doubts.items()),
    ):
        if count:
            yield f"rank {rank}: {count} {what}"
    if of.without_kernels:
        codes = _some(code_text(code) for code in of.without_kernels)
        yield f"rank {rank}: no kernel was launched under the labels of {codes}, so they are left out"
    if of.doubled:
        doubled = _some(code_text(*double) for double in dict.fromkeys(of.doubled))
        yield f"rank {rank}: {doubled} stood more than once in a step; the first was kept"
    if of.nearly:
        names = _some(map(shown, of.nearly))
        yield f"rank {rank}: what is called nearly as labels and transfers are was not taken for them: {names}"
    if of.unreadable:
        yield f"rank {rank}: labels that name no action were left out: {_some([repr(n) for n in of.unreadable])}"


def _incomplete(step: RankStep) -> Iterator[str]:
    """Forwards without a backward and the like; by stage."""
    have: dict[tuple[int, int], dict[Kind, set[int]]] = defaultdict(lambda: defaultdict(set))
    for c in step.compute:
        for code in (c.code, c.partner):
            if code != NO_ACTION:
                have[code_pipe(code), code_stage(code)][Kind(code_kind(code))].add(code_microbatch(code))
    for (pipe, stage), kinds in sorted(have.items()):
        where = f"stage {stage}" + (f" of pipe {pipe}" if pipe else "")
        backward = kinds[Kind.B] | kinds[Kind.I]
        for what, which in (
            ("a forward but no backward", kinds[Kind.F] - backward),
            ("a backward but no forward", (backward | kinds[Kind.W]) - kinds[Kind.F]),
            ("an I but no W", kinds[Kind.I] - kinds[Kind.W] - kinds[Kind.B]),
            ("a W but no I", kinds[Kind.W] - kinds[Kind.I] - kinds[Kind.B]),
        ):
            if which:
                yield f"{where}: {what} of microbatch {_some(map(str, sorted(which)))}"


def _has_split_first_stage(of: RankSteps) -> bool:
    return of.style is LabelStyle.RUNTIME and any(
        code_kind(c.code) == Kind.I and code_stage(c.code) == 0 for step in of.steps.values() for c in step.compute
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {_some(map(str, ranks))}"


def _some(items: Iterable[str]) -> str:
    listed = list(items)
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    return ", ".join(listed[:_MOST_LISTED]) + more
