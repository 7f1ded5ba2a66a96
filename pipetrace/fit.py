"""Costs as they were measured, to simulate with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from pipetrace.action import (
    ALL_TO_ALL_PARTS,
    COMPUTE_KINDS,
    NO_ACTION,
    BoolArray,
    IntArray,
    Kind,
    Part,
    code_kind,
    code_layer,
    code_part,
    code_stage,
)
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.errors import TraceError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.timeline import UNKNOWN, Lane, Timeline


def fit_costs(steps: Sequence[Timeline]) -> Costs:
    """The costs of `measured_costs`, without what was assumed for them."""
    return measured_costs(steps)[0]


def measured_costs(steps: Sequence[Timeline]) -> tuple[Costs, tuple[str, ...]]:
    """The median duration of every stage's F, B, I and W over all microbatches, replicas and steps.

    Transfers are free and overlapped pairs cost what their halves do: an ideal at these costs is the schedule with
    this model's compute and nothing else. A stage that was not measured costs the median of those that were.

    What the run does not tell is assumed, and said: where a stage has only full backwards, I and W are half of B each;
    where it has no forward or no backward, the median of the other stages stands in; where of I and W one is missing,
    it costs nothing (a first stage may make no input gradient). Where a stage has no full backward, B is I + W.

    Of a schedule in parts of layers the same is fitted for every part, over all layers of a stage; F, B, I and W are
    what the parts come to, and the default those of the usual stage.

    Args:
        steps: Measured timelines of one schedule.

    Returns:
        The costs, and a sentence for each thing that was assumed.
    """
    if any(code_part(step.code).any() for step in steps):
        return _fit_parts(steps)
    tiles = [step.where(step.is_compute & (step.partner == NO_ACTION)) for step in steps]
    stage = np.concatenate([code_stage(tile.code) for tile in tiles])
    kind = np.concatenate([code_kind(tile.code) for tile in tiles])
    duration = np.concatenate([tile.end - tile.start for tile in tiles])

    def median(of_stage: int, letter: Kind) -> int | None:
        picked = duration[(stage == of_stage) & (kind == letter)]
        return int(np.median(picked)) if picked.size else None

    measured = {s: {letter: median(s, letter) for letter in _LETTERS} for s in np.unique(stage).tolist()}
    default = _usual(list(measured.values()))
    return Costs(default, {s: _stage(of, default) for s, of in measured.items()}), _assumed(measured)


_LETTERS = (Kind.F, Kind.I, Kind.W, Kind.B)
_Measured = Mapping[Kind, int | None]


def _is_whole(of: _Measured) -> bool:
    """Whether of the backward only the whole was measured."""
    return of[Kind.B] is not None and of[Kind.I] is None and of[Kind.W] is None


def _has_backward(of: _Measured) -> bool:
    return any(of[letter] is not None for letter in (Kind.I, Kind.W, Kind.B))


def _halves(whole: int) -> tuple[int, int]:
    """I and W of a backward of which only the whole is known; together they are it."""
    return whole // 2, whole - whole // 2


def _stage(of: _Measured, default: StageCosts) -> StageCosts:
    forward, backward = of[Kind.F], of[Kind.B]
    forward = default.F if forward is None else forward
    if not _has_backward(of):
        return replace(default, F=forward)
    if backward is not None and _is_whole(of):
        return StageCosts(forward, *_halves(backward), B=backward)
    return StageCosts(forward, of[Kind.I] or 0, of[Kind.W] or 0, B=backward)


def _usual(stages: Sequence[_Measured]) -> StageCosts:
    """The median over the stages of what was measured of each."""

    def median(values: Sequence[int]) -> int | None:
        return int(np.median(values)) if values else None

    usual = {letter: median([ns for of in stages if (ns := of[letter]) is not None]) for letter in _LETTERS}
    if usual[Kind.B] is not None:
        # Of a stage without a B, what it would be: else few full backwards would stand for all.
        full = [of[Kind.B] or (of[Kind.I] or 0) + (of[Kind.W] or 0) for of in stages if _has_backward(of)]
        usual[Kind.B] = median(full)
    return _stage({**usual, Kind.F: usual[Kind.F] or 0}, StageCosts(0, 0, 0))


def _assumed(measured: Mapping[int, _Measured]) -> tuple[str, ...]:
    """What `_stage` takes for granted, in words."""

    def of(stages: Sequence[int]) -> str:
        if len(stages) == len(measured):
            return ""
        return f" of stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))}"

    notes = []
    if whole := [s for s, got in measured.items() if _is_whole(got)]:
        notes.append(f"the backward{of(whole)} was measured whole: I and W are taken as half of it each")
    missing = {
        "F": [s for s, got in measured.items() if got[Kind.F] is None],
        "backward": [s for s, got in measured.items() if not _has_backward(got)],
    }
    for name, stages in missing.items():
        if stages:
            taken = "taken to cost 0" if len(stages) == len(measured) else "taken as the median of the other stages"
            notes.append(f"no {name}{of(stages)} was measured: it is {taken}")
    for letter, other in ((Kind.I, Kind.W), (Kind.W, Kind.I)):
        if stages := [s for s, got in measured.items() if got[letter] is None and got[other] is not None]:
            notes.append(f"no {letter.name}{of(stages)} was measured: it is taken to cost 0")
    return tuple(notes)


def _fit_parts(steps: Sequence[Timeline]) -> tuple[Costs, tuple[str, ...]]:
    tiles = [step.where(np.isin(code_kind(step.code), list(map(int, COMPUTE_KINDS)))) for step in steps]
    code = np.concatenate([tile.code for tile in tiles])
    duration = np.concatenate([tile.end - tile.start for tile in tiles])
    whole_of = []

    def median(stage: int, part: Part, *kinds: Kind) -> int | None:
        picked = duration[(code_stage(code) == stage) & (code_part(code) == part) & np.isin(code_kind(code), kinds)]
        return int(np.median(picked)) if picked.size else None

    def of(stage: int, part: Part) -> PartCosts:
        forward = median(stage, part, Kind.F) or 0
        if part in ALL_TO_ALL_PARTS:
            return PartCosts(forward, median(stage, part, Kind.I, Kind.B) or 0)
        split, whole, weight = (median(stage, part, kind) for kind in (Kind.I, Kind.B, Kind.W))
        if split is None and weight is None and whole is not None:
            whole_of.append(stage)
            return PartCosts(forward, *_halves(whole))
        return PartCosts(forward, split or 0, weight or 0)

    stages = np.unique(code_stage(code)).tolist()
    layers = {s: LayerCosts(**{part.name.lower(): of(s, part) for part in Part}) for s in stages}
    letters = [field.name for field in fields(PartCosts)]

    def usual(part: Part) -> PartCosts:
        every = [layer.of(part) for layer in layers.values()]
        return PartCosts(*(int(np.median([getattr(one, letter) for one in every])) for letter in letters))

    layer = LayerCosts(**{part.name.lower(): usual(part) for part in Part})
    note = f"the backward was measured whole{'' if set(whole_of) == set(stages) else ' in places'}: I and W of a part"
    held = {s: np.unique(code_layer(code[code_stage(code) == s])).size for s in stages}
    whole = {s: StageCosts(**layers[s].whole(held[s])) for s in stages}
    default = StageCosts(**layer.whole(int(np.median(list(held.values())))))
    costs = Costs(default, whole, layer=layer, stage_layers=layers)
    return costs, (f"{note} are taken as half of it each",) if whole_of else ()


@dataclass(frozen=True, slots=True)
class Spread:
    """How one thing's durations scatter, in ns.

    Args:
        count: How often it was measured.
        fastest: The shortest of all.
        low, median, high: A tenth of all is below `low`, half below `median`, a tenth above `high`.
    """

    count: int
    fastest: int
    low: int
    median: int
    high: int

    @classmethod
    def of(cls, durations: IntArray) -> Spread:
        """Of at least one duration."""
        fastest, low, median, high = (int(value) for value in np.percentile(durations, [0, 10, 50, 90]))
        return cls(durations.size, fastest, low, median, high)


@dataclass(frozen=True)
class Fit:
    """Measured costs, and how sure they are.

    Args:
        costs: To simulate with: medians.
        actions: Spread by (stage, kind); the kind is its letter, "F&B" for pairs under their forward's stage, and with
            its part behind it ("F mlp") where an MoE layer was taken apart; "recompute" for forwards that were run
            again in a backward, which has them in its own time; "REDUCE_GRAD" and "OPTIM" for what closes a step.
        transfers: Spread of all transfers between ranks; None where none can be timed.
        transfers_between: Spread by (from stage, to stage).
        assumed: What was not measured and what stands in for it, a sentence each.
    """

    costs: Costs
    actions: Mapping[tuple[int, str], Spread]
    transfers: Spread | None
    transfers_between: Mapping[tuple[int, int], Spread]
    assumed: tuple[str, ...] = ()


def fit(
    steps: Sequence[Timeline],
    *,
    common_clock: bool = True,
    recomputed: Sequence[Mapping[tuple[int, int], int]] = (),
    tells_recompute: bool = True,
) -> Fit:
    """Costs with their spread, transfers and pairs included.

    A transfer is timed from when both sides were ready for it to the end of the wait for it, for which their clocks
    must be comparable. That is when the data were picked up, however early they came; only where the receiver began to
    wait before the data were sent is it their arrival. So between two stages a transfer costs the median of those that
    were so awaited, or where none was the fastest, and the cost is the median over all two stages: where two clocks are
    apart, one way seems as much faster as the other seems slower.

    What a forward takes that is run again in a backward (activation checkpointing) is a cost of its own, and taken from
    that backward's, where the traces tell them apart; else it is part of the backward.

    Args:
        steps: Measured timelines of one schedule, of any replicas.
        common_clock: Whether times of different ranks can be compared; where they cannot, transfers stay free.
        recomputed: Of each step, ns of the forwards that were run again, by replica and code of their backward.
        tells_recompute: Whether the traces would show such forwards.

    Raises:
        TraceError: Nothing was measured.
    """
    steps = [step for step in steps if step.is_compute.any()]
    if not steps:
        raise TraceError("no action was measured, so there are no costs", "`pipetrace read` tells what was found")
    kept = np.isin(code_kind(_column(steps, "code")), [*map(int, COMPUTE_KINDS), *map(int, _CLOSING)])
    code, partner, duration = (
        column[kept] for column in (_column(steps, "code"), _column(steps, "partner"), _durations(steps))
    )
    names = (code_stage(code) << 10) | (code_part(code) << 6) | ((partner != NO_ACTION) << 5) | code_kind(code)
    actions = {}
    for name in np.unique(names).tolist():
        letter = "F&B" if name >> 5 & 1 else Kind(name & 31).name
        part = f" {Part(name >> 6 & 7).name.lower()}" if name >> 6 & 7 else ""
        actions[name >> 10, letter + part] = Spread.of(duration[names == name])
    costs, assumed = measured_costs(steps)
    pairs = duration[partner != NO_ACTION]
    if pairs.size:
        median = int(np.median(pairs))
        costs = replace(costs, pair=PairCost(median, median, median))
    costs = _with_closing(costs, actions)
    again = _again(recomputed)
    actions |= {(stage, _AGAIN): Spread.of(np.array(times)) for stage, times in again.items()}
    if again and costs.layer is not None:
        assumed += ("forwards that are run again are part of their parts' backward",)
    elif again:
        costs = _with_recompute(costs, actions)
    elif not tells_recompute:
        assumed += (
            "autograd's operations were not recorded: where a forward is run again, it is part of its backward",
        )
    actions = dict(sorted(actions.items(), key=lambda of: of[0][0]))
    between = _transfers(steps) if common_clock else {}
    if common_clock:
        assumed += _untimed(steps)
    if not between:
        return Fit(costs, actions, None, {}, assumed)
    every = Spread.of(np.concatenate([durations for durations, _ in between.values()]))
    p2p = int(np.median([_cost(durations, awaited) for durations, awaited in between.values()]))
    spreads = {ends: Spread.of(durations) for ends, (durations, _) in sorted(between.items())}
    return Fit(replace(costs, p2p=p2p), actions, every, spreads, assumed)


_CLOSING = (Kind.REDUCE_GRAD, Kind.OPTIM)
_AGAIN = "recompute"


def _with_closing(costs: Costs, actions: Mapping[tuple[int, str], Spread]) -> Costs:
    """The costs with what closes a step."""
    for kind in _CLOSING:
        medians = {stage: spread.median for (stage, name), spread in actions.items() if name == kind.name}
        if medians:
            usual = {kind.name.lower(): int(np.median(list(medians.values())))}
            own = {stage: replace(costs.of(stage), **{kind.name.lower(): ns}) for stage, ns in medians.items()}
            costs = replace(costs, default=replace(costs.default, **usual), stages={**costs.stages, **own})
    return costs


def _again(recomputed: Sequence[Mapping[tuple[int, int], int]]) -> dict[int, list[int]]:
    """ns of each forward that was run again in a B or an I, by stage."""
    again: dict[int, list[int]] = {}
    for of in recomputed:
        for (_, code), ns in of.items():
            if code_kind(code) in (Kind.B, Kind.I):
                again.setdefault(code_stage(code), []).append(ns)
    return dict(sorted(again.items()))


def _with_recompute(costs: Costs, actions: Mapping[tuple[int, str], Spread]) -> Costs:
    """The costs with what is run again apart from the backward."""

    def apart(of: StageCosts, time: int, *, whole: bool) -> StageCosts:
        backward = None if of.B is None else max(of.B - time, 0)
        if whole and backward is not None:
            return replace(of, **dict(zip("IW", _halves(backward), strict=True)), B=backward, recompute=time)
        return replace(of, I=max(of.I - time, 0), B=backward, recompute=time)

    own = {}
    for stage, of in costs.stages.items():
        spread = actions.get((stage, _AGAIN))
        if spread is not None:
            own[stage] = apart(of, spread.median, whole=(stage, "I") not in actions)
    # What stands for other stages recomputes as the usual one does, those that do not included.
    usual = int(np.median([own[stage].recompute if stage in own else 0 for stage in costs.stages]))
    default = apart(costs.default, usual, whole=not any(kind == "I" for _, kind in actions))
    return replace(costs, default=default, stages={**costs.stages, **own})


def _column(steps: Sequence[Timeline], name: str) -> IntArray:
    column: IntArray = np.concatenate([getattr(step, name) for step in steps])
    return column


def _durations(steps: Sequence[Timeline]) -> IntArray:
    return _column(steps, "end") - _column(steps, "start")


def _cost(durations: IntArray, awaited: BoolArray) -> float:
    """What a transfer between two stages costs, in ns."""
    return float(np.median(durations[awaited]) if awaited.any() else durations.min())


def _untimed(steps: Sequence[Timeline]) -> tuple[str, ...]:
    """Receives that say nothing of what a transfer costs, in words."""
    receives = sum(int((step.lane == Lane.RECV).sum()) for step in steps)
    unknown = receives - sum(int(step.is_timed.sum()) for step in steps)
    if not unknown:
        return ()
    what = f"{unknown} of {receives} receives came" if unknown < receives else f"all {receives} receives came"
    return (f"{what} from senders that were not recorded: how long they were in transfer is not known",)


def _transfers(steps: Sequence[Timeline]) -> dict[tuple[int, int], tuple[IntArray, BoolArray]]:
    """Durations of the receives and which were awaited from before their start, by the stages at both ends."""
    code, duration = _column(steps, "code"), _durations(steps)
    waited, start = _column(steps, "waited"), _column(steps, "start")
    awaited = (waited != UNKNOWN) & (waited <= start)
    timed: BoolArray = np.concatenate([step.is_timed for step in steps])
    between = {}
    for kind, ahead in ((Kind.RECV_F, -1), (Kind.RECV_B, 1)):
        of_kind = timed & (code_kind(code) == kind)
        for stage in np.unique(code_stage(code[of_kind])).tolist():
            here = of_kind & (code_stage(code) == stage)
            between[stage + ahead, stage] = duration[here], awaited[here]
    return between
