from __future__ import annotations

import numpy as np
import pytest

from pipetrace.diff.patterns import CellSet, amounts_of, cells_of, explain, spread_of


def table(shift: dict[int, float], each: int, seed: int = 0, cells: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Groups and values: noise of 0.01, and what some groups are shifted by."""
    groups = np.repeat(np.arange(cells), each)
    values = np.random.default_rng(seed).normal(0, 0.01, groups.size)
    return groups, values + np.array([shift.get(int(group), 0.0) for group in groups])


def sets(cells: int = 6) -> list[CellSet]:
    every = [CellSet(f"cell {i}", np.arange(cells) == i) for i in range(cells)]
    return [*every, CellSet("even", np.arange(cells) % 2 == 0), CellSet("all", np.ones(cells, dtype=np.bool_))]


def test_amounts_are_told_from_all_values() -> None:
    """The mean of values off by chance is nearer than their median, over some hundred draws."""
    told, medians = [], []
    for seed in range(100):
        groups, values = table({2: 0.3}, 8, seed)
        cells, weight = cells_of(groups, values, 6), np.ones(6)
        found = explain(cells, weight, sets(), 0.02)
        assert [pattern.names for pattern in found] == [("cell 2",)]
        (pattern,) = amounts_of(cells, weight, found)
        told.append(pattern.amount - 0.3)
        medians.append(float(np.median(values[groups == 2])) - 0.3)
    assert np.std(told) < 0.95 * np.std(medians)
    assert np.max(np.abs(told)) < 0.02


def test_one_value_that_sticks_out_moves_no_amount() -> None:
    groups, values = table({2: 0.3}, 8)
    values[int(np.flatnonzero(groups == 2)[0])] = 5.0
    cells, weight = cells_of(groups, values, 6), np.ones(6)
    (pattern,) = amounts_of(cells, weight, explain(cells, weight, sets(), 0.02))
    assert pattern.amount == pytest.approx(0.3, abs=0.01)


def test_amounts_of_two_that_overlap_and_what_the_others_have_in_common() -> None:
    groups, values = table({0: 0.2, 2: 0.5, 4: 0.2}, 12)
    cells, weight = cells_of(groups, values + 0.004, 6), np.ones(6)
    found = {p.names[0]: p.amount for p in amounts_of(cells, weight, explain(cells, weight, sets(), 0.02))}
    assert found == pytest.approx({"even": 0.2, "cell 2": 0.3}, abs=0.015)


@pytest.mark.parametrize("each", [1, 2])
def test_what_one_value_alone_has_is_no_pattern(each: int) -> None:
    groups, values = table({}, each)
    values[0] += 1.0
    assert explain(cells_of(groups, values, 6), np.ones(6), sets(), 0.02) == []


def test_the_spread_where_each_group_has_one_value_is_that_between_groups() -> None:
    values, twos = np.random.default_rng(1).normal(0, 0.01, 400), np.repeat(np.arange(200), 2)
    assert spread_of(np.arange(400), values) == pytest.approx(0.01, rel=0.2)
    assert spread_of(twos, values + twos) == pytest.approx(0.01, rel=0.2)
