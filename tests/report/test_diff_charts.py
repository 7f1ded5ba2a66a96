"""Charts of a diff: what their labels have room for."""

from __future__ import annotations

import pytest

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, diff
from pipetrace.diff.reference import typical_costs
from pipetrace.fit import fit_costs
from pipetrace.report.diff_charts import drift_figure, waterfall_figure
from pipetrace.report.units import MILLISECONDS
from pipetrace.schedules import build
from pipetrace.simulate import simulate

MS = 1_000_000


@pytest.mark.parametrize("ranks", [1, 6, 16, 17])
def test_each_rank_has_a_line_of_its_own_looks(ranks: int) -> None:
    schedule = build("1f1b", ranks, 2)
    of = diff(simulate(schedule), simulate(schedule, Costs(p2p=MS)))
    lines = drift_figure(of, MILLISECONDS).data
    assert [line.name for line in lines] == [f"rank {rank}" for rank in range(ranks)]
    assert len({(line.line.color, line.line.dash) for line in lines}) == ranks
    assert {line.showlegend for line in lines} == {ranks <= 16}


def test_a_long_name_of_a_bar_is_wrapped_not_cut_off() -> None:
    schedule = build("1f1b", 4, 8)
    usual, slow = StageCosts(10 * MS, 12 * MS, 8 * MS), StageCosts(15 * MS, 18 * MS, 12 * MS)
    measured = simulate(schedule, Costs(usual, {2: slow}))
    costs = typical_costs(fit_costs([measured]))
    of = Analysis(diff(simulate(schedule, costs), measured), schedule, costs, fitted=True, steps=[measured])
    labels = waterfall_figure(of, MILLISECONDS).layout.yaxis.ticktext
    assert labels[0].replace("<br>", " ") == of.base_name
    assert len(of.base_name) > 34
    assert all(len(line) <= 34 for label in labels for line in label.split("<br>"))
