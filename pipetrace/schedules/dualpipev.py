"""DualPipeV: DualPipe folded in half, with one copy of the weights (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe;
"cut in half" after Qi et al., the zero-bubble authors).

Rank r holds stages r and 2p-1-r. In the steady state a forward of one half and a backward of the other run as one
overlapped pair, in which each hides the other's all-to-alls. The eight phases are those of the reference's README and
`step`.
"""

from __future__ import annotations

from collections import deque

from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.schedules.counted import CountedOrder
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int) -> Schedule:
    """DualPipeV; two chunks a rank; m >= 2p."""
    p, m = ranks, microbatches
    require(
        m >= 2 * p,
        f"dualpipev on {p} ranks with {m} microbatches",
        f"it needs at least two microbatches a rank: -m {2 * p} or more",
    )
    orders = [rank_order(rank, p, m) for rank in range(p)]
    return Schedule.from_orders("dualpipev", Placement.v(p), m, orders)


def rank_order(rank: int, p: int, m: int) -> CountedOrder:
    """The list of one rank, stage `rank` on the way down and 2p-1-`rank` on the way up."""
    down, up = rank, 2 * p - 1 - rank
    order = CountedOrder(m)
    delayed: deque[int] = deque()  # stages whose W is still to come, oldest first

    def split_backward(stage: int) -> None:
        order.next_I(stage)
        delayed.append(stage)

    # 1: forwards down.
    for _ in range(2 * (p - 1 - rank)):
        order.next_F(down)
    # 2: forwards down and up.
    for _ in range(rank + 1):
        order.next_F(down)
        order.next_F(up)
    # 3: what has come up goes backward, its W at once since nothing else is there to run.
    for _ in range(p - 1 - rank):
        order.next_I(up)
        order.next_W(up)
        order.next_F(up)
    # 4: the main phase, a pair each way.
    for i in range(m - 2 * p + rank + 1):
        if i == 0 and rank == p - 1:
            # Here the backward is of the microbatch that has just come up: nothing of it can overlap.
            order.next_F(down)
            order.next_B(up)
        else:
            order.next_FB(down, up)
        order.next_FB(up, down)
    # 5: the forwards down have run out.
    for _ in range(p - 1 - rank):
        order.next_B(up)
        order.next_FB(up, down)
    # 6: backwards both ways; from its middle on split, to let the ranks before go on.
    middle = rank + 1
    for i in range(2 * (rank + 1)):
        stage = down if i % 2 else up
        if i < middle:
            order.next_B(stage)
        else:
            split_backward(stage)
    # 7: delayed weight gradients between the last backwards.
    for _ in range(p - 1 - rank):
        order.next_W(delayed.popleft())
        split_backward(down)
    # 8: the weight gradients that are left.
    while delayed:
        order.next_W(delayed.popleft())
    return order


SPEC = ScheduleSpec("dualpipev", build, "v", "m >= 2p", "DeepSeek-AI 2025, DualPipeV (github.com/deepseek-ai/DualPipe)")
