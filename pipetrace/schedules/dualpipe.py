"""DualPipe: two pipes in opposite directions, forwards of one hidden in backwards of the other (DeepSeek-AI 2024,
"DeepSeek-V3 Technical Report", arXiv:2412.19437).

Rank r holds stage r of pipe 0 and stage p-1-r of pipe 1. The first half of the ranks does what the ranks of DualPipeV
on p/2 ranks do, the way down being pipe 0 and the way up pipe 1; the other half mirrors it with the pipes exchanged.
"""

from __future__ import annotations

from pipetrace.action import Action, Pair
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.dualpipev import rank_order
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int) -> Schedule:
    """DualPipe; p and m even, m >= 2p; pipe 0 holds the first m/2 microbatches, pipe 1 the others."""
    p, m = ranks, microbatches
    require(p % 2 == 0, f"dualpipe on {p} ranks", "it mirrors the ranks, so their number is even")
    require(
        m % 2 == 0 and m >= 2 * p,
        f"dualpipe on {p} ranks with {m} microbatches",
        f"it needs an even number, at least two a rank: -m {2 * p} or more",
    )
    orders = []
    for rank in range(p):
        mirrored = rank >= p // 2
        folded = p - 1 - rank if mirrored else rank
        order = RankOrder()
        for item in rank_order(folded, p // 2, m // 2).actions():
            order.append(_unfolded(item, p, m, mirrored))
        orders.append(order)
    return Schedule.from_orders("dualpipe", Placement.mirrored(p), m, orders)


def _unfolded(item: Action | Pair, p: int, m: int, mirrored: bool) -> Action | Pair:
    """What an action of the folded pipeline is here: its ways down and up are the two pipes."""
    if isinstance(item, Pair):
        forward, backward = (_unfolded(half, p, m, mirrored) for half in (item.forward, item.backward))
        assert isinstance(forward, Action)
        assert isinstance(backward, Action)
        return Pair(forward, backward)
    # The ways down and up have p/2 stages each in the fold, and go on to p on the mirrored ranks.
    goes_up = item.stage >= p // 2
    pipe = int(goes_up != mirrored)
    assert item.microbatch is not None
    return Action(item.kind, item.stage, item.microbatch + pipe * (m // 2), pipe)


SPEC = ScheduleSpec(
    "dualpipe", build, "mirrored", "p, m even; m >= 2p", "DeepSeek-V3: DeepSeek-AI 2024, arXiv:2412.19437"
)
