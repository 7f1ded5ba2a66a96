"""What whole stages cost whose layers run on two lanes: the tile-level figures that come out of the lane model.

What stands alone takes the sum of its parts. Pairs are taken from a small step on one rank that is expanded and timed,
one for each two stages that are paired, where their layers have costs of their own. As fences keep tiles apart, a step
of whole stages with these costs takes what the same step in parts does, to the ns, in the orders `aligned` and
`megatron`; and in `serial`, once its pairs are taken apart, which there run one half after the other
(`stage_schedule`). In `dualpipe` a pair begins under the one before it, so a pair's cost depends on where in a run of
pairs it stands, and what is simulated in whole stages is close, not equal: there a pair waits as a whole for both
inputs, the steady inner pair stands for all of them, and those beside it are taken to be of the same two stages.
"""

from __future__ import annotations

from dataclasses import replace

from pipetrace.action import (
    NO_ACTION,
    Action,
    BoolArray,
    IntArray,
    Kind,
    Pair,
    Part,
    code_kind,
    code_layer,
    code_part,
    code_stage,
)
from pipetrace.costs import Costs, PairCost, RunCosts
from pipetrace.errors import CostError
from pipetrace.lanes import lane_times
from pipetrace.metrics.tiles import is_kind
from pipetrace.part_costs import LayerCosts
from pipetrace.passes.expand_moe import expand_tiles
from pipetrace.passes.lists import entries, with_lists
from pipetrace.passes.overlap_orders import MoeOrder, Overlap
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule

_RUN = 7  # pairs: by the fourth a run repeats, unless all-to-alls back up behind each other, and then nothing ever does


def stage_costs(costs: Costs, overlap: Overlap, schedule: Schedule | None = None) -> Costs:
    """Costs of whole stages and of overlapped pairs, from those of the parts of their layers.

    Args:
        costs: With costs of parts; what it says of stages, pairs and recomputation is replaced or not allowed.
        overlap: How tiles are run in parts.
        schedule: What they are for, in whole stages: it tells which stages are paired, and whether the backward half of
            a pair is an I, whose W is a tile of its own. Without it pairs have a B, and cost what those of the default
            layers do.

    Returns:
        The same with F, I, W and B of each stage, and the pairs' costs and when their outputs are ready.

    Raises:
        CostError: Recomputation is given, which is known for whole stages only.
    """
    if any(of.recompute for of in (costs.default, *costs.stages.values())):
        raise CostError("recompute is a cost of whole stages, and their costs come out of parts", "leave it out")
    layer = costs.layer or LayerCosts()
    back = Kind.B if schedule is None or not _has_split_pairs(schedule) else Kind.I
    known = {(layer, layer): _pair_cost(layer, layer, overlap, back)}
    pairs = {}
    for forward, backward in [] if schedule is None else _paired_stages(schedule):
        both = costs.layer_of(forward), costs.layer_of(backward)
        if both not in known:
            known[both] = _pair_cost(*both, overlap, back)
        if both != (layer, layer):
            pairs[forward, backward] = known[both]
    return replace(
        costs,
        default=replace(costs.default, **layer.whole(overlap.layers)),
        stages={
            stage: replace(costs.of(stage), **costs.layer_of(stage).whole(overlap.layers))
            for stage in {*costs.stages, *costs.stage_layers}
        },
        pair=known[layer, layer],
        pairs=pairs,
    )


def stage_schedule(schedule: Schedule, overlap: Overlap) -> Schedule:
    """The whole stages that `stage_costs` are costs of: the schedule, but in `serial` with its pairs taken apart."""
    if overlap.order is not MoeOrder.SERIAL or not (schedule.partner != NO_ACTION).any():
        return schedule
    lists = [
        [half for code, partner in entries(schedule, rank) for half in (code, partner) if half != NO_ACTION]
        for rank in range(schedule.ranks)
    ]
    return with_lists(schedule, [[(code, NO_ACTION) for code in mine] for mine in lists])


def _has_split_pairs(schedule: Schedule) -> bool:
    """Whether the backward halves of a schedule's pairs are I rather than B."""
    partner = schedule.partner[schedule.partner != NO_ACTION]
    return bool((code_kind(partner) == Kind.I).any())


def _paired_stages(schedule: Schedule) -> list[tuple[int, int]]:
    """Of which two stages a schedule has pairs: the forward's and the backward's."""
    paired = schedule.partner != NO_ACTION
    halves = (code_stage(schedule.code[paired]), code_stage(schedule.partner[paired]))
    return sorted(set(zip(*(stage.tolist() for stage in halves), strict=True)))


def _pair_cost(forward: LayerCosts, backward: LayerCosts, overlap: Overlap, back: Kind) -> PairCost | RunCosts:
    """What a pair of two stages costs whose layers cost so much."""
    alone = _run(forward, backward, overlap, back, 1)[0]
    if not overlap.hoists:
        return alone
    run = _run(forward, backward, overlap, back, _RUN)
    return RunCosts(alone, run[0], run[_RUN // 2], run[-1])


def _run(forward: LayerCosts, backward: LayerCosts, overlap: Overlap, back: Kind, pairs: int) -> list[PairCost]:
    """The costs of pairs in a row, each from where it begins for good to where the next one does."""
    # Stage 0 goes forward, stage 1 backward. All that pairs need is there before the first of them.
    actions: list[Action | Pair] = [Action(Kind.F, stage, i) for stage in range(2) for i in range(pairs)]
    actions += [Pair(Action(Kind.F, 0, pairs + i), Action(back, 1, i)) for i in range(pairs)]
    actions += [Action(Kind.F, 1, pairs + i) for i in range(pairs)]
    if back is Kind.I:
        actions += [Action(Kind.W, 1, i) for i in range(pairs)]
    actions += [Action(Kind.B, 1, pairs + i) for i in range(pairs)]
    actions += [Action(Kind.B, 0, i) for i in range(2 * pairs)]
    whole = Schedule.from_actions("one rank", Placement.loop(1, 2), 2 * pairs, [actions])
    costs = Costs(stage_layers={0: forward, 1: backward})
    parts, tile = expand_tiles(whole, overlap, costs)
    times = lane_times(parts, costs)
    code, start, end = parts.code, times.start, times.end
    is_backward = is_kind(code, Kind.B, Kind.I)
    early = _is(code, Kind.F, 0, Part.ATTN) | (is_backward & _place(code, overlap.layers - 1, Part.COMBINE))
    begins, ends, leaves, returns = [], [], [], []
    for number in range(pairs):
        mine = tile == 2 * pairs + number
        # What runs under the pair before belongs to that one.
        rows = mine if number == 0 or not overlap.hoists else mine & ~early
        begins.append(int(start[rows].min()))
        ends.append(int(end[rows].max()))
        leaves.append(int(end[mine & _is(code, Kind.F, overlap.layers - 1, Part.COMBINE)][0]))
        returns.append(int(end[mine & is_backward & _place(code, 0, Part.ATTN)][0]))
    until = [*begins[1:], ends[-1]] if overlap.hoists else ends
    return [
        PairCost(stop - begin, leave - begin, back_at - begin)
        for begin, stop, leave, back_at in zip(begins, until, leaves, returns, strict=True)
    ]


def _place(code: IntArray, layer: int, part: Part) -> BoolArray:
    which: BoolArray = (code_layer(code) == layer) & (code_part(code) == part)
    return which


def _is(code: IntArray, kind: Kind, layer: int, part: Part) -> BoolArray:
    which: BoolArray = (code_kind(code) == kind) & _place(code, layer, part)
    return which
