"""ZB-H2: no bubble within a rank's span, at twice 1F1B's memory (Qi et al. 2023, arXiv:2401.10241).

ZB-H1 with twice as many forwards ahead: they fill the warm-up too, and the ranks end one after the other.
"""

from __future__ import annotations

from pipetrace.schedule import Schedule
from pipetrace.schedules.spec import ScheduleSpec, require
from pipetrace.schedules.zb_h1 import handcrafted


def build(ranks: int, microbatches: int, *, memory: int | None = None) -> Schedule:
    """ZB-H2; rank = stage. p >= 2; the bubble is gone from m >= 2p-1 on.

    Args:
        ranks: p.
        microbatches: m.
        memory: Most activations in flight on a rank, freed at W, in chunks: from p, which is ZB-H1, to 2p-1, the
            schedule's own; the forwards run as far ahead as it allows.
    """
    own = 2 * ranks - 1
    require(
        memory is None or memory >= ranks,
        f"zb-h2 on {ranks} ranks within {memory} chunks",
        f"it holds at least {ranks}, as zb-h1 does, and {own} without a limit",
    )
    return handcrafted("zb-h2", ranks, microbatches, held=own if memory is None else min(memory, own))


SPEC = ScheduleSpec(
    "zb-h2",
    build,
    "loop",
    "p >= 2; best m >= 2p-1",
    "Zero Bubble: Qi et al. 2023, arXiv:2401.10241",
    ("memory",),
)
