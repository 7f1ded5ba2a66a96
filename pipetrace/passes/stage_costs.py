"""What whole stages cost whose layers run on two lanes: the tile-level figures that come out of the lane model.

What stands alone takes the sum of its parts. Pairs are taken from a small step on one rank that is expanded and timed.
As fences keep tiles apart, a step of whole stages with these costs takes what the same step in parts does, to the ns,
in the orders `aligned` and `megatron`; and in `serial`, once its pairs are taken apart, which there run one half after
the other (`stage_schedule`). In `dualpipe` a pair begins under the one before it, so a pair's cost depends on where in
a run of pairs it stands, and what is simulated in whole stages is close, not equal: there a pair waits as a whole for
both inputs, and the steady inner pair stands for all of them.
"""

from __future__ import annotations

from dataclasses import replace

from pipetrace.action import NO_ACTION, Action, BoolArray, IntArray, Kind, Pair, Part, code_kind, code_layer, code_part
from pipetrace.costs import Costs, PairCost, RunCosts, StageCosts
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


def stage_costs(costs: Costs, overlap: Overlap, *, split_pairs: bool = False) -> Costs:
    """Costs of whole stages and of overlapped pairs, from those of the parts of their layers.

    Args:
        costs: With costs of parts; what it says of stages, pairs and recomputation is replaced or not allowed.
        overlap: How tiles are run in parts.
        split_pairs: Whether the backward half of the pairs is an I, whose W is a tile of its own, rather than a B.

    Returns:
        The same with F, I, W and B of each stage, and the pair's cost and when its outputs are ready. Pairs of stages
        whose layers have costs of their own cost what the others do.

    Raises:
        CostError: Recomputation is given, which is known for whole stages only.
    """
    if any(of.recompute for of in (costs.default, *costs.stages.values())):
        raise CostError("recompute is a cost of whole stages, and their costs come out of parts", "leave it out")
    layer = costs.layer or LayerCosts()
    back = Kind.I if split_pairs else Kind.B
    alone = _run(layer, overlap, back, 1)
    pair: PairCost | RunCosts = alone[0]
    if overlap.hoists:
        run = _run(layer, overlap, back, _RUN)
        pair = RunCosts(alone[0], run[0], run[_RUN // 2], run[-1])
    return replace(
        costs,
        default=_of_stage(layer, overlap.layers, costs.default),
        stages={
            stage: _of_stage(costs.layer_of(stage), overlap.layers, costs.of(stage))
            for stage in {*costs.stages, *costs.stage_layers}
        },
        pair=pair,
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


def has_split_pairs(schedule: Schedule) -> bool:
    """Whether the backward halves of a schedule's pairs are I rather than B."""
    partner = schedule.partner[schedule.partner != NO_ACTION]
    return bool((code_kind(partner) == Kind.I).any())


def _of_stage(layer: LayerCosts, layers: int, given: StageCosts) -> StageCosts:
    """The costs of a stage whose tiles run alone; the end of the step stays as given."""
    whole = {kind.name: layers * layer.total(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)}
    return replace(given, **whole)


def _run(layer: LayerCosts, overlap: Overlap, back: Kind, pairs: int) -> list[PairCost]:
    """The costs of pairs in a row, each from where it begins for good to where the next one does."""

    def backward(microbatch: int) -> list[Action]:
        return [Action(of, 0, microbatch) for of in ([back] if back is Kind.B else [Kind.I, Kind.W])]

    # All forwards whose backwards run in pairs come first, so that every input is there.
    actions: list[Action | Pair] = [Action(Kind.F, 0, i) for i in range(pairs)]
    actions += [Pair(Action(Kind.F, 0, pairs + i), Action(back, 0, i)) for i in range(pairs)]
    if back is Kind.I:
        actions += [Action(Kind.W, 0, i) for i in range(pairs)]
    actions += [action for i in range(pairs, 2 * pairs) for action in backward(i)]
    whole = Schedule.from_actions("one rank", Placement.loop(1), 2 * pairs, [actions])
    parts, tile = expand_tiles(whole, overlap, Costs(layer=layer))
    times = lane_times(parts, Costs(layer=layer))
    code, start, end = parts.code, times.start, times.end
    is_backward = is_kind(code, Kind.B, Kind.I)
    early = _is(code, Kind.F, 0, Part.ATTN) | (is_backward & _place(code, overlap.layers - 1, Part.COMBINE))
    begins, ends, leaves, returns = [], [], [], []
    for number in range(pairs):
        mine = tile == pairs + number
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
