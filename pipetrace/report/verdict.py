"""The verdict of a diff in plain words: the largest cause first, with its size and what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pipetrace.diff import Analysis, Fault, FaultKind
from pipetrace.diff.waterfall import Part, ranks_text
from pipetrace.report.page import short
from pipetrace.report.units import TimeUnit, percent, unit_for

MOST_CAUSES = 4
_OVER = 1.0  # times the noise: a step that is longer by less is not
_LEAST_OVER = 0.02  # of what it is held against
_MUCH = 0.5  # of what it is longer by: what causes explain less of is not all
_WORTH = 0.1  # of what it is longer by
_LEAST_SHARE = 0.002  # of the step: what is less is not worth a sentence of its own
_LEAST_ALONE = 0.01  # the same where nobody can tell what the step feels


def verdict(of: Analysis, unit: TimeUnit | None = None) -> list[str]:
    """The sentences of a diff's verdict, the largest cause in the first.

    Args:
        of: What is judged.
        unit: Of its times; chosen by the makespan when None.
    """
    measured = of.of.measured.makespan
    unit = unit or unit_for(max(measured, of.waterfall.base))
    if not of.one_clock:
        return [
            "The ranks' clocks were not aligned, so that nothing is said of what one rank waited for from another; "
            "what each rank computed can be compared."
        ]
    if of.absent:
        return [_unrecorded(of, unit), *_of_recorded(of, unit), *_swapped(of, unit), _figures(of, unit)]
    found = of.found
    felt = [fault for fault in found.faults if found.is_felt(fault) or fault.kind is FaultKind.CLOCK]
    other = [fault for fault in found.faults if fault not in felt]
    sentences = []
    if felt:
        sentences = [f"{_what(of, fault, unit)}: {_effect(of, fault, unit)}." for fault in felt[:MOST_CAUSES]]
        explained = sum(max(0, fault.effect) for fault in felt)
        over = _over(of, unit)
        if over and explained < _MUCH * (measured - of.waterfall.base):
            # Slow ranks cover for each other: without one of them the other still holds the step up.
            alone = "That is" if len(felt) == 1 else "One by one these would save"
            sentences.append(f"{alone} the smaller part: {over}.")
    else:
        largest = f"; {_small(of, other[0], unit)}" if other else ""
        over = _over(of, unit)
        nothing = "Nothing that the step feels" if other else "Nothing"
        sentences = [
            f"No single cause stands out over the noise, but {over}."
            if over
            else f"{nothing} stands out over the noise{largest}."
        ]
        most = max(other, key=lambda fault: fault.effect, default=None)
        if over and most is not None and most.effect > 0:
            sentences.append(f"Of single causes {_small(of, most, unit)}.")
        other = other[1:]
    worth = [fault for fault in other if abs(fault.total) > _LEAST_SHARE * measured][: MOST_CAUSES - len(felt)]
    if worth and felt:
        sentences.append(
            "Also seen, but not felt: " + "; ".join(_what(of, fault, unit, full=False) for fault in worth) + "."
        )
    return [*sentences, *_swapped(of, unit), _figures(of, unit)]


def _unrecorded(of: Analysis, unit: TimeUnit) -> str:
    """That ranks are missing, and what can therefore not be said."""
    ranks = ranks_text(of.absent)
    was, them = ("was", "it") if len(of.absent) == 1 else ("were", "them")
    times = sorted(of.awaited_unrecorded.items(), key=lambda item: -item[1])
    waited = ", ".join(f"rank {rank} {_time(unit, ns)}" for rank, ns in times[:MOST_CAUSES])
    waited += f" and {len(times) - MOST_CAUSES} more" if len(times) > MOST_CAUSES else ""
    others = f"what others waited for from {them} ({waited})" if times else f"what others waited for from {them}"
    in_both = " in both runs" if of.before else ""
    return (
        f"{ranks[0].upper()}{ranks[1:]} {was} not recorded{in_both}: {others} has no cause here, and what the step "
        "would take without a cause, imbalance and overhead cannot be told."
    )


def _of_recorded(of: Analysis, unit: TimeUnit) -> list[str]:
    """What is at fault with the ranks that were recorded, without what it does to the step."""
    least = _LEAST_ALONE * of.of.measured.makespan
    found = [fault for fault in of.found.faults if fault.kind is FaultKind.CLOCK or abs(fault.total) > least]
    if not found:
        return ["In what was recorded nothing stands out over the noise."]
    sentences = []
    for fault in found[:MOST_CAUSES]:
        effect = f": {_effect(of, fault, unit)}" if fault.kind is FaultKind.CLOCK else ""
        sentences.append(f"{_what(of, fault, unit)}{effect}.")
    return sentences


def _over(of: Analysis, unit: TimeUnit) -> str | None:
    """That the step is longer than what it is held against, and by what; None where that is noise."""
    longer = of.of.measured.makespan - of.waterfall.base
    if longer <= max(_OVER * of.noise.makespan, _LEAST_OVER * of.waterfall.base):
        return None
    largest = sorted((part for part in _parts(of) if part[1] > _WORTH * longer), key=lambda part: -part[1])[:3]
    *most, last = [f"{name} ({_time(unit, size, signed=True)})" for name, size in largest] or [""]
    made = f"{', '.join(most)} and {last}" if most else last
    share = f" ({percent(longer / of.waterfall.base)})" if of.waterfall.base else ""
    return f"the step is {_time(unit, longer)}{share} over {of.base_name}{f', most of it {made}' if made else ''}"


def _swapped(of: Analysis, unit: TimeUnit) -> list[str]:
    count, worst = of.swapped
    if not count:
        return []
    were = "was received before it was" if count == 1 else "were received before they were"
    return [
        f"{_counted(count, 'transfer')} {were} sent, by up to {_time(unit, worst)}, though all ranks share one clock: "
        "messages met in another order than their labels say."
    ]


def _figures(of: Analysis, unit: TimeUnit) -> str:
    fall, measured = of.waterfall, of.of.measured.makespan
    longer = measured - fall.base
    parts = [f"{name} {_time(unit, size, signed=True)}" for name, size in _parts(of)]
    share = f" ({percent(longer / fall.base, signed=True)})" if fall.base else ""
    spread = "" if of.noise.steps is None else f", between steps ±{_time(unit, of.noise.steps)}"
    base = f"{of.base_name[0].upper()}{of.base_name[1:]} takes {_time(unit, fall.base)}"
    noise = f"noise ±{_time(unit, of.noise.makespan)}{spread}"
    return f"{base}, the step {_time(unit, measured)}{share}{': ' if parts else ''}{', '.join(parts)}; {noise}."


def _parts(of: Analysis) -> list[tuple[str, int]]:
    """The waterfall by parts, those that are not 0: name and ns."""
    fall = of.waterfall
    work = next(bar.name for bar in fall.bars if bar.part is Part.WORK)
    parts = [
        ("compute", fall.of(Part.COMPUTE)),
        ("transfers", fall.of(Part.TRANSFER)),
        ("late posts", fall.of(Part.POST)),
        ("order", fall.of(Part.ORDER)),
        ("host gaps", fall.of(Part.GAP)),
        (work, fall.of(Part.WORK)),
        ("clocks", of.of.measured.makespan - of.measured.makespan),
        ("not replayed", fall.residual),
    ]
    return [(name, size) for name, size in parts if size]


def _effect(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    measured = of.measured.makespan
    if fault.kind is FaultKind.CLOCK:
        raw = of.of.measured.makespan
        instead = f"{_time(unit, measured)} instead of {_time(unit, raw)}"
        return f"all else is told on corrected clocks, on which the step takes {instead}"
    share = percent(abs(fault.effect) / measured) if measured else "0 %"
    without = _time(unit, measured - fault.effect)
    if fault.effect >= 0:
        return f"{_time(unit, fault.effect)}, {share} of the step, which would take {without} without it"
    return f"the step is shorter by {_time(unit, -fault.effect)} ({share}) for it, and would take {without} without it"


def _small(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    text = _what(of, fault, unit, full=False)
    effect = f"{_time(unit, fault.effect)} of the step" if fault.effect else "without effect on the step"
    return f"the largest is that {text[0].lower() + text[1:] if text.split()[0] in _LOWERED else text} ({effect})"


_LOWERED = ("Rank", "Stage", "All", "Link", "Transfers", "The", "What", "Half", "Overlapped")


def _what(of: Analysis, fault: Fault, unit: TimeUnit, *, full: bool = True) -> str:
    """What is at fault, as a sentence without its end."""
    text = _WORDS[fault.kind](of, fault, unit)
    text = text[0].upper() + text[1:] if not text[0].isdigit() else text
    # Of one rank alone nobody takes it for all of them.
    names = fault.names if of.schedule.ranks > 1 else tuple(name for name in fault.names if name != "all ranks")
    if full and len(names) > 1:
        text += f"; seen from outside, {_twins(fault, names)}"
    return text


def _twins(fault: Fault, names: Sequence[str]) -> str:
    """What could be at fault as well, and why that cannot be told."""
    first, *others = names
    slow = fault.kind is FaultKind.COMPUTE and fault.amount > 1
    would = " and ".join(f"a slow {name}" if slow and name.startswith(("rank", "stage")) else name for name in others)
    alone = first.removeprefix("rank ").isdecimal() and [name.removeprefix("stage ").isdecimal() for name in others]
    return f"{would} would look the same{f' ({first} holds only that stage)' if alone == [True] else ''}"


def _than(of: Analysis) -> str:
    if of.before:
        return "before"
    return "the typical stage's" if of.fitted else "the costs say"


def _compute(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    whose, name = fault.names[0], ""
    if whose.startswith(("rank", "stage", "all ranks")):
        name = f"{whose}'{'' if whose.endswith('s') else 's'} compute"
    else:
        name = whose
    plural = whose.startswith(("all overlapped", "overlapped", "all all-to-alls", "all-to-alls"))
    verb = "take" if plural else "takes"
    only = "only " if fault.amount < 1 else ""
    around = _around(of, fault)
    than = f"as {_than(of)}" if around is None else f"on top of {around.names[0]}'s {around.amount:.2f}"
    return (
        f"{name} {verb} {only}{fault.amount:.2f} times as long {than} "
        f"({_counted(fault.count, 'action')}, {_time(unit, fault.total, signed=True)} in all)"
    )


def _around(of: Analysis, fault: Fault) -> Fault | None:
    """The slow rank or stage of which this is one kind: its amount is what it has beside that."""
    if fault.names[0].startswith("all-to-alls"):
        return None  # of another lane
    for other in of.found.faults:
        if other.kind is FaultKind.COMPUTE and any(fault.names[0].endswith(f" of {name}") for name in other.names):
            return other
    return None


def _link(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    name = fault.names[0]
    than = "before" if of.before else f"the ideal's {_time(unit, fault.typical)}"
    counted = _counted(fault.count, "transfer")
    if name.startswith("transfer "):
        return f"the {name} takes {_time(unit, fault.amount)} longer than others of its link"
    if name == "all links":
        return f"transfers take {_time(unit, fault.amount)} more than {than} on all links ({counted})"
    return f"{name} takes {_time(unit, fault.amount)} more for a transfer than other links, over {than} ({counted})"


def _send(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001 - all are called alike
    return (
        f"{fault.names[0]} post{_s(fault)} sends {_time(unit, fault.amount)} after what they carry is made "
        f"({_counted(fault.count, 'send')})"
    )


def _receive(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001
    return (
        f"{fault.names[0]} post{_s(fault)} {_counted(fault.count, 'receive')} after the data was sent, half of them by "
        f"over {_time(unit, fault.amount)}: the lane is blocked by earlier items"
    )


def _gap(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    alone = fault.names[0] == "all ranks" or len(of.of.recorded) == 1
    more = "" if alone else " more than other ranks"
    return (
        f"{fault.names[0]} pause{_s(fault)} {_time(unit, fault.amount)}{more} before each action though all it needs "
        f"is there (seen on {_counted(fault.count, 'action')}, {_time(unit, fault.total)} in all)"
    )


def _delayed(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001
    return f"{fault.names[0]} starts {_time(unit, fault.amount)} late though all it needs is there"


def _long(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001
    return f"{fault.names[0]} takes {_time(unit, fault.amount)} longer than its like"


def _order(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001
    than = "before" if of.before else "in the schedule"
    return f"{_counted(fault.count, 'action')} ran at another place than {than}: {fault.names[0]}"


def _missing(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    is_ = "is" if fault.count == 1 else "are"
    return f"{fault.names[0]} {is_} missing ({_time(unit, fault.total)} of work by {_source(of)})"


def _extra(of: Analysis, fault: Fault, unit: TimeUnit) -> str:  # noqa: ARG001
    is_ = "is" if fault.count == 1 else "are"
    return f"{fault.names[0]} {is_} not in the schedule ({_time(unit, fault.total)} of work)"


def _source(of: Analysis) -> str:
    return "the run before" if of.before else "the typical stage" if of.fitted else "the costs"


def _clock(of: Analysis, fault: Fault, unit: TimeUnit) -> str:
    ahead = of.clocks.ahead if of.clocks is not None else {}
    if of.schedule.ranks == 2:
        who = f"the clocks of the two ranks are {_time(unit, abs(fault.amount))} apart"
    else:
        each = [
            f"rank {rank}'s is {_time(unit, abs(ns))} {'ahead' if ns > 0 else 'behind'}" for rank, ns in ahead.items()
        ]
        who = f"the ranks' clocks disagree: {', '.join(each)}"
    return (
        f"{who} ({_counted(fault.count, 'transfer')} received before being sent, by up to {_time(unit, fault.total)})"
    )


def _time(unit: TimeUnit, ns: float, *, signed: bool = False) -> str:
    return f"{'+' if signed and ns > 0 else ''}{short(round(ns), unit)} {unit.name}"


def _s(fault: Fault) -> str:
    return "" if fault.names[0] == "all ranks" else "s"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


_WORDS: Mapping[FaultKind, Callable[[Analysis, Fault, TimeUnit], str]] = {
    FaultKind.COMPUTE: _compute,
    FaultKind.LINK: _link,
    FaultKind.SEND: _send,
    FaultKind.RECEIVE: _receive,
    FaultKind.GAP: _gap,
    FaultKind.DELAYED: _delayed,
    FaultKind.LONG: _long,
    FaultKind.ORDER: _order,
    FaultKind.MISSING: _missing,
    FaultKind.EXTRA: _extra,
    FaultKind.CLOCK: _clock,
}
