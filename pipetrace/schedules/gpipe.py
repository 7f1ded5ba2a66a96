"""GPipe: all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965)."""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int, *, backward: str = "fifo") -> Schedule:
    """GPipe; rank = stage.

    Args:
        ranks: p.
        microbatches: m.
        backward: "fifo", the backwards in microbatch order, as torch runs it; or "lifo", last microbatch first, as the
            paper's figure has it.
    """
    require(backward in ("fifo", "lifo"), f"gpipe knows no backward order {backward!r}", "it is fifo or lifo")
    orders = []
    for stage in range(ranks):
        order = RankOrder()
        for i in range(microbatches):
            order.F(stage, i)
        for i in range(microbatches) if backward == "fifo" else reversed(range(microbatches)):
            order.B(stage, i)
        orders.append(order)
    return Schedule.from_orders("gpipe", Placement.loop(ranks), microbatches, orders)


SPEC = ScheduleSpec("gpipe", build, "loop", "any p, m", "Huang et al. 2019, arXiv:1811.06965", ("backward",))
