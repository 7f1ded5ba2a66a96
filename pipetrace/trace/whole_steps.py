"""Which steps were recorded whole: a profiler may start in the middle of one, and a crash or a cut file end one.

What a step should hold is what the schedule has, where that is known. Else every stage should have done the same for
every microbatch of the step, and the step have as many of them as the others have. A backward counts for its two
halves, and a stage whose input gradient is never seen (torch's first stage makes none) owes none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetrace.action import NO_ACTION, Kind, code_kind, code_microbatch, code_pipe, code_stage, code_text, pack
from pipetrace.schedule import Schedule
from pipetrace.trace.reading.model import RankStep

_HALVES = {Kind.F: (Kind.F,), Kind.B: (Kind.I, Kind.W), Kind.I: (Kind.I,), Kind.W: (Kind.W,)}
_MOST_NAMED = 3

_Done = set[tuple[int, int, int, Kind]]
"""(pipe, stage, microbatch, one of F, I, W)."""


@dataclass(frozen=True)
class Judged:
    """What a step lacks.

    Args:
        done: Actions that were found, a backward as two.
        lacks: By place, what is not there; a rank that was recorded, but not in this step, lacks all.
    """

    done: int
    lacks: Mapping[int, tuple[int, ...]]

    @property
    def is_whole(self) -> bool:
        """Whether it lacks nothing."""
        return not self.lacks

    def __str__(self) -> str:
        """What is missing, in words."""
        count = sum(map(len, self.lacks.values()))
        ranks = len(self.lacks)
        some = [code_text(code) for codes in self.lacks.values() for code in codes][:_MOST_NAMED]
        where = f"rank {next(iter(self.lacks))}" if ranks == 1 else f"{ranks} ranks"
        more = ", ..." if count > len(some) else ""
        return f"lacks {count} action{'s' if count > 1 else ''} of {where} ({', '.join(some)}{more})"


def judge(
    steps: Mapping[str, Mapping[int, RankStep]], places: Sequence[int], ranks: int, schedule: Schedule | None = None
) -> dict[str, Judged]:
    """What each step lacks, by name.

    Args:
        steps: By name, then by place: replica × `ranks` + pipeline rank.
        places: Of all ranks that were recorded and have labels.
        ranks: Of a pipeline.
        schedule: What was run, where that is known.
    """
    done = {name: {place: _done(of.get(place)) for place in places} for name, of in steps.items()}
    if schedule is not None and schedule.ranks == ranks:
        wanted = _of_schedule(schedule)
        owed = {name: {place: wanted[place % ranks] for place in places} for name in steps}
    else:
        owed = _alike(done, steps)
    seen = {place: {item[:2] + item[3:] for of in done.values() for item in of[place]} for place in places}
    judged = {}
    for name, of in done.items():
        lacks = {}
        for place in places:
            kinds = seen[place]
            left = [item for item in owed[name][place] - of[place] if not _makes_no_input_gradient(item, kinds)]
            if left:
                lacks[place] = _codes(left)
        judged[name] = Judged(sum(map(len, of.values())), lacks)
    return judged


def _done(step: RankStep | None) -> _Done:
    done: _Done = set()
    for c in () if step is None else step.compute:
        for code in (c.code, c.partner):
            if code != NO_ACTION:
                _add(done, code)
    return done


def _add(done: _Done, code: int) -> None:
    for half in _HALVES.get(Kind(code_kind(code)), ()):
        done.add((code_pipe(code), code_stage(code), code_microbatch(code), half))


def _codes(left: Sequence[tuple[int, int, int, Kind]]) -> tuple[int, ...]:
    """The actions to name: the two halves of a backward as one."""
    kinds: dict[tuple[int, int, int], list[Kind]] = {}
    for *where, kind in sorted(left):
        kinds.setdefault((where[0], where[1], where[2]), []).append(kind)
    return tuple(
        pack(kind, stage, batch, pipe)
        for (pipe, stage, batch), of in kinds.items()
        for kind in ([k for k in of if k is Kind.F] + [Kind.B] if {Kind.I, Kind.W} <= set(of) else of)
    )


def _of_schedule(schedule: Schedule) -> list[_Done]:
    wanted: list[_Done] = [set() for _ in range(schedule.ranks)]
    codes, partners, first = schedule.code.tolist(), schedule.partner.tolist(), schedule.first.tolist()
    for rank, done in enumerate(wanted):
        for row in range(first[rank], first[rank + 1]):
            for code in (codes[row], partners[row]):
                if code != NO_ACTION:
                    _add(done, code)
    return wanted


def _makes_no_input_gradient(item: tuple[int, int, int, Kind], kinds: set[tuple[int, int, Kind]]) -> bool:
    pipe, stage, _, kind = item
    return kind is Kind.I and (pipe, stage, Kind.I) not in kinds and (pipe, stage, Kind.W) in kinds


def _alike(
    done: Mapping[str, Mapping[int, _Done]], steps: Mapping[str, Mapping[int, RankStep]]
) -> dict[str, dict[int, _Done]]:
    """What each step owes, by what its stages and the other steps did."""
    batches = {
        name: {(pipe, batch) for of in places.values() for pipe, _, batch, _ in of} for name, places in done.items()
    }
    usual = _usual([len(of) for of in batches.values()])
    of_usual = {one for of in batches.values() if len(of) == usual for one in of}
    kinds: dict[int, set[tuple[int, int, Kind]]] = {}
    for places in done.values():
        for place, of in places.items():
            kinds.setdefault(place, set()).update((pipe, stage, kind) for pipe, stage, _, kind in of)
    owed = {}
    for name in steps:
        here = batches[name] if len(batches[name]) >= usual else batches[name] | of_usual
        owed[name] = {
            place: {(pipe, stage, batch, kind) for pipe, stage, kind in of for p, batch in here if p == pipe}
            for place, of in kinds.items()
        }
    return owed


def _usual(counts: Sequence[int]) -> int:
    """The number that occurs most often, the largest of several."""
    often = Counter(counts)
    return max(often, key=lambda count: (often[count], count), default=0)


def left_out(judged: Mapping[str, Judged]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The steps that are not to be measured, and why, a line each.

    Where none is whole, those that lack most are left out.
    """
    whole = [name for name, of in judged.items() if of.is_whole]
    if len(whole) == len(judged):
        return (), ()
    if whole:
        out = tuple(name for name in judged if name not in whole)
        some = "; ".join(f"{name} {judged[name]}" for name in out[:_MOST_NAMED])
        more = "; ..." if len(out) > _MOST_NAMED else ""
        return out, (f"{len(out)} of {len(judged)} steps are not whole and were left out: {some}{more}",)
    most = max(of.done for of in judged.values())
    kept = [name for name, of in judged.items() if of.done == most]
    out = tuple(name for name in judged if name not in kept)
    most_complete, left = kept[0], judged[kept[0]]
    if len(judged) == 1:
        what = f"the step is not whole: it {left}"
    else:
        what = f"none of the {len(judged)} steps is whole; the most complete, {most_complete}, {left}"
    more = f", and {len(kept) - 1} others as many" if len(kept) > 1 else ""
    return out, (f"{what}{more}: figures are of a part of a step",)
