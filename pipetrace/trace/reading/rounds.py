"""The steps of a trace that marks none, by what repeats in it.

Everything stands equally often, one round after the other; or the recording began in the middle of a step, or ended in
one. Then each rank's list begins with a forward of its first microbatch: cut there, no action stands twice in a round,
and no backward before its forward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from pipetrace.action import NO_ACTION, RECV_KINDS, Kind, code_kind, code_microbatch, code_pipe, code_stage
from pipetrace.trace.labels import Role
from pipetrace.trace.reading.model import RankStep, RankSteps
from pipetrace.trace.reading.ranges import Found

NAME = "step "
"""What steps that nothing marks are called, with a number behind."""


def rounds_of(found: list[Found]) -> list[list[Found]]:
    """The labels of each step; of one where no repetition is seen.

    Those of sends and receives are in none where nothing was computed of their step.
    """
    even = _even(found)
    if even is not None:
        return even
    compute = [f for f in found if f.label.role is Role.COMPUTE]
    starts = _starts(compute)
    return [found] if starts is None else _cut(found, compute, starts)


def _even(found: list[Found]) -> list[list[Found]] | None:
    """The rounds where all stands equally often."""
    seen: Counter[tuple[Role, int, int]] = Counter()
    rounds: list[list[Found]] = []
    for f in found:
        key = f.label.role, f.label.code, f.label.partner
        if f.label.role is Role.WAIT and rounds:
            rounds[-1].append(f)  # a rank may wait for one thing several times
            continue
        at = seen[key]
        seen[key] += 1
        if at == len(rounds):
            rounds.append([])
        rounds[at].append(f)
    if len(seen) <= 1 or len(set(seen.values())) != 1:
        return None
    apart = all(one[-1].start <= following[0].start for one, following in pairwise(rounds))
    # Parts of two steps can make up one: then its backwards come before their forwards.
    computed = ([(f.label.code, f.label.partner) for f in one if f.label.role is Role.COMPUTE] for one in rounds)
    return rounds if apart and all(_is_part_of_a_step(keys, True) for keys in computed) else None


def _starts(compute: Sequence[Found]) -> list[int] | None:
    """Where in the compute labels the steps begin, the first perhaps with its middle; None where none repeats."""
    keys = [(f.label.code, f.label.partner) for f in compute]
    if len(set(keys)) == len(keys):
        return None
    forwards = [key[0] for key in keys if code_kind(key[0]) == Kind.F]
    least: dict[tuple[int, int], int] = {}
    for code in forwards:
        where = code_pipe(code), code_stage(code)
        least[where] = min(least.get(where, code), code, key=code_microbatch)
    possible = []
    for code in set(least.values()):
        starts = [at for at, key in enumerate(keys) if key[0] == code]
        edges = sorted({0, *starts})
        parts = [keys[first:last] for first, last in pairwise([*edges, len(keys)])]
        if all(_is_part_of_a_step(part, at > 0 or starts[0] == 0) for at, part in enumerate(parts)):
            possible.append((starts[0], edges))
    return min(possible)[1] if possible else None


def _is_part_of_a_step(keys: Sequence[tuple[int, int]], has_its_start: bool) -> bool:
    seen: set[int] = set()
    for key in keys:
        for code in key:
            if code == NO_ACTION:
                continue
            if code in seen:
                return False
            kind = code_kind(code)
            if has_its_start and kind in (Kind.B, Kind.I) and code - kind + Kind.F not in seen:
                return False
            seen.add(code)
    return True


def _cut(found: list[Found], compute: Sequence[Found], starts: Sequence[int]) -> list[list[Found]]:
    """All labels by the rounds of the compute labels: a receive with what takes it, all else with what was before."""
    begins = [compute[at].start for at in starts]
    rounds: list[list[Found]] = [[] for _ in begins]
    uses: dict[int, list[tuple[int, int]]] = {}
    for number, (first, last) in enumerate(pairwise([*starts, len(compute)])):
        for f in compute[first:last]:
            for code in (f.label.code, f.label.partner):
                if code != NO_ACTION:
                    uses.setdefault(_half(code), []).append((f.start, number))
    for f in found:
        number = bisect_right(begins, f.start) - 1
        if code_kind(f.label.code) in RECV_KINDS:
            used = uses.get(_half(f.label.code), [])
            later = [round_ for start, round_ in used if start >= f.start]
            # What nothing takes any more was for a step of which nothing was computed, unless the last lacks just that.
            lacks = not any(round_ == len(rounds) - 1 for _, round_ in used)
            number = later[0] if later else len(rounds) - 1 if lacks else -1
        if number >= 0:
            rounds[number].append(f)
    return [one for one in rounds if one]  # where a damaged time puts two beginnings at one moment, one has nothing


def _half(code: int) -> int:
    """An action without its kind, but for which way it goes."""
    kind = Kind(code_kind(code))
    return (code - kind) << 1 | (kind in (Kind.F, Kind.RECV_F, Kind.SEND_F))


def numbered_alike(steps: Mapping[int, RankSteps]) -> str | None:
    """Gives the rounds of several ranks, cut one by one, numbers that go together: those that lie at the same time.

    Returns:
        What could not be told; None where all could.
    """
    cut = {place: of for place, of in steps.items() if len(of.steps) > 1 and all(n.startswith(NAME) for n in of.steps)}
    if len({len(of.steps) for of in cut.values()}) < 2:
        return None  # a part of a step counts as one, so that they go together as they stand
    spans = {place: [_span(step) for step in of.steps.values()] for place, of in cut.items()}
    first = max(cut, key=lambda place: len(spans[place]))
    shifts = {}
    for place, mine in spans.items():
        least, most = 1 - len(mine), len(spans[first]) - 1
        shared = {by: _shared(mine, spans[first], by) for by in range(least, most + 1)}
        shifts[place] = max(shared, key=lambda by: (shared[by], -abs(by)))
        if not shared[shifts[place]]:
            return "nothing marks the steps, and which of them go together on all ranks could not be told"
    lowest = min(shifts.values())
    for place, of in cut.items():
        of.steps = {f"{NAME}{at + shifts[place] - lowest}": step for at, step in enumerate(of.steps.values())}
    return None


def _span(step: RankStep) -> tuple[int, int]:
    return min((c.start for c in step.compute), default=0), max((c.end for c in step.compute), default=0)


def _shared(mine: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], by: int) -> int:
    """ns that the steps of two ranks have in common, if those of one have numbers higher by some."""
    pairs = ((span, others[at + by]) for at, span in enumerate(mine) if 0 <= at + by < len(others))
    return sum(max(0, min(one[1], other[1]) - max(one[0], other[0])) for one, other in pairs)
