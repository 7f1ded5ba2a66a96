"""ZB-H2: no bubble within a rank's span, at twice 1F1B's memory (Qi et al. 2023, arXiv:2401.10241).

ZB-H1 with twice as many forwards ahead: they fill the warm-up too, and the ranks end one after the other.
"""

from __future__ import annotations

from pipetrace.schedule import Schedule
from pipetrace.schedules.spec import ScheduleSpec
from pipetrace.schedules.zb_h1 import handcrafted


def build(ranks: int, microbatches: int) -> Schedule:
    """ZB-H2; rank = stage. p >= 2; the bubble is gone from m >= 2p-1 on."""
    return handcrafted("zb-h2", ranks, microbatches, ahead=2)


SPEC = ScheduleSpec("zb-h2", build, "loop", "p >= 2; best m >= 2p-1", "Zero Bubble: Qi et al. 2023, arXiv:2401.10241")
