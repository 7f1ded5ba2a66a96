"""What takes part in a comparison, and what is swept, from text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipetrace.compare import Candidate, Setting
from pipetrace.costs import Costs, Link
from pipetrace.errors import CostError, ScheduleError, SizeError
from pipetrace.part_costs import LayerCosts
from pipetrace.passes import MoeOrder, Overlap
from pipetrace.passes.steady_pair import with_ratio, with_weight_share
from pipetrace.schedule import Schedule
from pipetrace.schedules import ScheduleSpec, build_spec, check_options, get, listed
from pipetrace.shown import printable, shown
from pipetrace.times import parse_time
from pipetrace.toml_file import parse_toml
from pipetrace.waiting import Wait

OPTIONS: Mapping[str, str] = {"v": "chunks"}
"""Short names of builders' options, as they are written in text."""

MOE_VARIABLES = ("layers", "moe-order", "a2a", "weights")
"""What can be swept of MoE layers: a2a is all-to-all over compute time, weights the share of W in the backward."""

_COUNT = re.compile(r"[0-9]{1,9}")

VARIABLES = ("m", "p", "v", "group", "pipes", "p2p", "p2p-across", "ranks-per-node", "wait", *MOE_VARIABLES)


def candidate_of(text: str) -> Candidate:
    """`NAME` or `NAME:v=4,group=8`; with `moe-order=ORDER` among them in parts of MoE layers.

    Raises:
        ScheduleError: There is no such schedule, it does not take an option, or an option is not NAME=VALUE, or
            is given twice.
    """
    name, _, given = text.partition(":")
    options: dict[str, object] = {}
    for item in given.split(",") if given else ():
        option, equals, value = item.partition("=")
        if not equals:
            raise ScheduleError(f"cannot read {shown(item)} of {shown(text)}", "write NAME:v=4,group=8")
        option = OPTIONS.get(option.strip(), option.strip())
        if option in options:
            raise ScheduleError(f"{shown(text)} gives {option} twice", "write NAME:v=4,group=8")
        options[option] = literal(value.strip())
    order = options.pop("moe-order", None)
    spec = get(name)
    check_options(spec, options)
    label = text.replace(":", " ").replace(",", " ").replace("moe-order=", "")
    return replace(of_spec(spec, options, label), order=None if order is None else _order(str(order)))


def _order(text: str) -> MoeOrder:
    if text not in list(MoeOrder):
        raise ScheduleError(f"no order of MoE layers is called {shown(text)}", f"orders are {', '.join(MoeOrder)}")
    return MoeOrder(text)


def candidates_of(texts: Sequence[str], *, everything: bool) -> list[Candidate]:
    """A candidate for each text; for every schedule there is where there is none and `everything` is wanted.

    Raises:
        ScheduleError: As `candidate_of`.
    """
    if texts or not everything:
        return [candidate_of(text) for text in dict.fromkeys(texts)]
    return [of_spec(spec, {}, spec.name) for spec in listed()[0]]


def told_apart(candidates: Sequence[Candidate], sources: Sequence[str]) -> list[Candidate]:
    """Candidates of files, one each: where two have one label the whole name of the file stands for it."""
    labels = [candidate.label for candidate in candidates]
    return [
        replace(candidate, label=printable(source)) if labels.count(candidate.label) > 1 else candidate
        for candidate, source in zip(candidates, sources, strict=True)
    ]


def of_spec(spec: ScheduleSpec, options: Mapping[str, object], label: str) -> Candidate:
    """A schedule of the registry, or one's own."""

    def build(p: int, m: int, options: Mapping[str, object], costs: Costs) -> Schedule:
        return build_spec(spec, p, m, options, costs)

    return Candidate(label, build, options, frozenset(spec.options))


def of_schedule(schedule: Schedule, label: str) -> Candidate:
    """A schedule as it stands, e.g. of a file: it takes part at its own sizes only."""

    def build(p: int, m: int, options: Mapping[str, object], costs: Costs) -> Schedule:
        del options, costs
        if (p, m) != (schedule.ranks, schedule.microbatches):
            fits = f"it is for -p {schedule.ranks} -m {schedule.microbatches}"
            raise SizeError(f"{label} on {p} ranks with {m} microbatches", fits)
        return schedule

    return Candidate(label, build, {}, frozenset())


def literal(text: str) -> object:
    """A value as TOML reads it; text where it cannot.

    >>> literal("4"), literal("true"), literal("fifo")
    (4, True, 'fifo')
    """
    try:
        table = parse_toml(f"value = {text}")
    except ValueError:
        return text
    # More than a value, as in "4\\nx = 5", is text.
    return table["value"] if len(table) == 1 else text


def swept(text: str, base: Setting, unit: str) -> tuple[str, list[Setting]]:
    """`m=8,16,32` as the variable and a setting for each of its values.

    Args:
        text: A variable of `VARIABLES` and its values.
        base: What holds for all else.
        unit: Of the values that are times.

    Raises:
        ScheduleError: It cannot be read.
        CostError: A value of p2p or p2p-across is no time, or what is swept needs another option.
    """
    variable, equals, listed = text.partition("=")
    # Each once: a value given twice would be a second block of the same rows.
    variable, values = variable.strip(), list(dict.fromkeys(v.strip() for v in listed.split(",") if v.strip()))
    if not equals or variable not in VARIABLES or not values:
        raise ScheduleError(
            f"cannot sweep {shown(text)}", f"write m=8,16,32; what can be swept is {', '.join(VARIABLES)}"
        )
    if variable in MOE_VARIABLES:
        return variable, [_in_parts(base, variable, place, value, text) for place, value in enumerate(values)]
    if variable == "wait":
        return variable, [_waiting(base, place, value) for place, value in enumerate(values)]
    if variable in ("p2p", "p2p-across"):
        return variable, [_transfers(base, variable, value, unit) for value in values]
    return variable, [_count(base, variable, value, text) for value in values]


def _waiting(base: Setting, place: int, value: str) -> Setting:
    if value not in list(Wait):
        raise ScheduleError(f"cannot sweep wait: {shown(value)} is none", f"write wait={','.join(Wait)}")
    return replace(base, waiting=replace(base.waiting, policy=Wait(value)), value=float(place), label=value)


def _in_parts(base: Setting, variable: str, place: int, value: str, text: str) -> Setting:
    overlap, layer = base.overlap or Overlap(), base.costs.layer or LayerCosts()
    if variable == "moe-order":
        changed = Overlap(_order(value), overlap.layers)
        if changed.splits:
            changed = replace(overlap, order=changed.order)
        return replace(base, overlap=changed, value=float(place), label=value)
    if variable == "layers":
        at = _count(base, "m", value, text)
        changed = replace(overlap, layers=at.microbatches)
        return replace(base, overlap=changed, value=float(value), label=value)
    number = _ratio(value, variable, text)
    layer = with_ratio(layer, number) if variable == "a2a" else with_weight_share(layer, number)
    costs = replace(base.costs, layer=layer)
    return replace(base, overlap=overlap, costs=costs, value=number, label=value)


def _ratio(value: str, variable: str, text: str) -> float:
    most = 100.0 if variable == "a2a" else 1.0
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise CostError(
            f"cannot sweep {shown(text)}: {shown(value)} is no number from 0 to {most:g}",
            "a2a=0.5,1 is all-to-all over compute time, weights=0.3,0.5 the share of W in the backward",
        )
    return number


def _transfers(base: Setting, variable: str, value: str, unit: str) -> Setting:
    ns, network = parse_time(value, unit), base.costs.network
    if variable == "p2p":
        costs = replace(base.costs, p2p=ns)
    elif network.ranks_per_node is None:
        raise CostError("p2p-across is between nodes, and there is one", "say how many ranks with --ranks-per-node")
    else:
        bandwidth = None if network.across is None else network.across.bandwidth
        costs = replace(base.costs, network=replace(network, across=Link(ns, bandwidth)))
    return replace(base, costs=costs, value=float(value), label=f"{value} {unit.replace('us', 'µs')}")


def _count(base: Setting, variable: str, value: str, text: str) -> Setting:
    if not _COUNT.fullmatch(value):
        raise ScheduleError(
            f"cannot sweep {shown(text)}: {shown(value)} is no whole number up to 999999999", "write m=8,16,32"
        )
    number = int(value)
    at = replace(base, value=float(number), label=value)
    match variable:
        case "p":
            return replace(at, ranks=number)
        case "m":
            return replace(at, microbatches=number)
        case "ranks-per-node":
            if base.costs.network.across is None:
                raise CostError("ranks-per-node changes nothing", "say what lies between nodes with --p2p-across")
            return replace(at, costs=replace(base.costs, network=replace(base.costs.network, ranks_per_node=number)))
        case _:
            return replace(at, options=dict(base.options) | {OPTIONS.get(variable, variable): number})
