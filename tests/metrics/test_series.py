from __future__ import annotations

import numpy as np
import pytest

from pipetrace.metrics import Series


def test_changes_at_one_time_count_as_one() -> None:
    series = Series.of_changes(np.array([5, 3, 5]), np.array([1, 1, -1]))
    assert (series.time.tolist(), series.value.tolist()) == ([3, 5], [1, 1])


def test_a_mean_is_weighted_by_time_and_counts_nothing_outside() -> None:
    series = Series(np.array([2, 4, 8]), np.array([10, 40, 1000]))
    assert series.mean(0, 8) == pytest.approx((0 * 2 + 10 * 2 + 40 * 4) / 8)
    assert series.mean(3, 5) == pytest.approx((10 + 40) / 2)
    assert series.mean(9, 11) == 1000
    assert series.mean(5, 5) == 0


def test_a_mean_of_bytes_over_hours_does_not_overflow() -> None:
    hour = 3_600 * 10**9
    assert Series(np.array([0]), np.array([1 << 44])).mean(0, hour) == pytest.approx(2.0**44)
