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
            schedule's own; the forwards run as far ahead as it allows. With fewer than p microbatches, from m.
    """
    own, least = 2 * ranks - 1, min(ranks, microbatches)
    require(
        memory is None or memory >= least,
        f"zb-h2 on {ranks} ranks within {memory} chunks",
        f"it holds at least {least}, as zb-h1 does, and {min(own, microbatches)} without a limit",
    )
    # It never holds more than there are microbatches.
    held = own if memory is None or memory >= microbatches else min(memory, own)
    return handcrafted("zb-h2", ranks, microbatches, held=held)


SPEC = ScheduleSpec(
    "zb-h2",
    build,
    "loop",
    "p >= 2; best m >= 2p-1",
    "Zero Bubble: Qi et al. 2023, arXiv:2401.10241",
    ("memory",),
)
