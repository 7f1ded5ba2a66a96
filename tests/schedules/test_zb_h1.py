from __future__ import annotations

import pytest

from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.simulate import simulate


@pytest.mark.parametrize(("p", "m"), [(2, 3), (4, 8), (8, 16), (16, 40)])
def test_bubble_and_memory_as_in_the_paper(p: int, m: int) -> None:
    """Worst in-span bubble (p-1)(F+I-W), no more than p activations (Qi et al. 2023, table 2)."""
    schedule = build("zb-h1", p, m)
    unit = 1_000_000
    assert max(bubbles(simulate(schedule)).in_span_idle) == (p - 1) * unit
    assert set(peak_in_flight(schedule).release_at_weight_grad) == {p}


def test_weights_come_equally_late_on_every_rank() -> None:
    schedule = build("zb-h1", 3, 6)
    for rank in range(3):
        words = [str(action) for action in schedule.actions(rank)]
        # W0 follows the forward of microbatch p - 1, whatever the rank.
        assert words.index(f"{rank}W0") > words.index(f"{rank}F2")
        assert words.index(f"{rank}W0") < words.index(f"{rank}F3")
