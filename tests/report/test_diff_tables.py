from __future__ import annotations

import pytest

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, diff
from pipetrace.report.diff_tables import (
    awaited_rows,
    path_rows,
    reference_rows,
    schedule_rows,
    stage_rows,
    waiting_rows,
    waterfall_rows,
    waterfall_steps,
    what_if_rows,
)
from pipetrace.report.units import MILLISECONDS
from pipetrace.schedules import build
from pipetrace.simulate import simulate

MS = 1_000_000


@pytest.fixture(scope="module")
def many() -> Analysis:
    """Twenty ranks, of which two are slow."""
    schedule = build("1f1b", 20, 40)
    slow = {3: StageCosts(2 * MS, 2 * MS, 2 * MS), 7: StageCosts(3 * MS, 3 * MS, 3 * MS)}
    measured = simulate(schedule, Costs(stages=slow))
    return Analysis(diff(simulate(schedule), measured), schedule, Costs(), steps=[measured])


def column(rows: list[str]) -> float:
    return sum(float(cell.replace(",", "")) for cell in rows if cell)


def test_of_many_ranks_the_small_bars_are_one_and_the_sum_stays(many: Analysis) -> None:
    steps = waterfall_steps(many)
    assert "compute of 8 other ranks" in [name for name, _, _ in steps]
    assert steps[0][2] + sum(size for _, size, _ in steps) == steps[-1][2] == many.of.measured.makespan
    rows = waterfall_rows(many, MILLISECONDS).rows
    assert [row[0] for row in rows][:1] == ["the ideal"]
    assert len(rows) == len(steps)


def test_of_many_ranks_the_path_names_those_that_differ_most(many: Analysis) -> None:
    rows = path_rows(many, MILLISECONDS).rows
    names = [row[0] for row in rows]
    assert "rank 7" in names
    assert "9 other ranks" in names
    assert column([row[2] for row in rows]) == pytest.approx(many.of.measured.makespan / MS)
    assert column([row[1] for row in rows]) == pytest.approx(many.of.ideal.makespan / MS)


def test_rows_of_waiting_sum_to_the_makespan(many: Analysis) -> None:
    for row in waiting_rows(many, MILLISECONDS).rows:
        assert column(list(row[1:])) == pytest.approx(many.of.measured.makespan / MS)
    assert awaited_rows(many, MILLISECONDS).rows[0][1].endswith(("rank 7", "rank 6", "rank 8", "rank 1"))


def test_what_is_said_beside(many: Analysis) -> None:
    assert [row[0] for row in what_if_rows(many, MILLISECONDS).rows][:2] == ["stages balanced", "rank 7 healthy"]
    parts = reference_rows(many, MILLISECONDS).rows
    assert column([row[1] for row in parts[:4]]) == pytest.approx(many.of.measured.makespan / MS)
    assert any(row[0] == "zb-h1" for row in schedule_rows(many, MILLISECONDS).rows)
    assert "I and W are taken as half of it each" in schedule_rows(many, MILLISECONDS).caption
    assert stage_rows(many, MILLISECONDS).rows[7][-1] == max(row[-1] for row in stage_rows(many, MILLISECONDS).rows)
