from __future__ import annotations

import pytest

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, diff
from pipetrace.diff.threshold import parse_threshold
from pipetrace.errors import ConfigError
from pipetrace.schedules import build
from pipetrace.simulate import simulate

MS = 1_000_000


@pytest.fixture(scope="module")
def slow() -> Analysis:
    """Stage 1 of two takes twice as long: 1F1B's makespan goes from 12 to 21 or so."""
    schedule = build("1f1b", 2, 3)
    measured = simulate(schedule, Costs(stages={1: StageCosts(2 * MS, 2 * MS, 2 * MS)}))
    return Analysis(diff(simulate(schedule), measured), schedule, Costs())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("makespan:+{}%", lambda of: 100 * (of.of.measured.makespan / of.of.ideal.makespan - 1)),
        ("makespan:+{}ms", lambda of: (of.of.measured.makespan - of.of.ideal.makespan) / MS),
        ("slip:{}us", lambda of: of.of.slip.max() / 1000),
        ("bubble:+{}%", lambda of: 100 * (of.of.measured_bubbles.fraction - of.of.ideal_bubbles.fraction)),
        ("overhead:+{}ms", lambda of: of.references and of.references.overhead / MS),
        ("imbalance:+{}ms", lambda of: of.references and of.references.imbalance / MS),
    ],
)
def test_a_limit_is_crossed_just_above_it(slow: Analysis, text: str, value: object) -> None:
    assert callable(value)
    figure = float(value(slow))
    assert parse_threshold(text.format(f"{figure + 0.01:.4f}")).crossed(slow) is None
    if figure > 0:
        said = parse_threshold(text.format(f"{figure - 0.01:.4f}")).crossed(slow)
        assert said is not None
        assert "more than" in said


def test_counts() -> None:
    schedule = build("gpipe", 2, 3)
    ideal = simulate(schedule)
    of = Analysis(diff(ideal, ideal.where(ideal.code != int(schedule.code[0]))), schedule, Costs())
    assert parse_threshold("missing:1").crossed(of) is None
    assert parse_threshold("missing:0").crossed(of) == "missing and extra actions: 1, more than 0"
    assert parse_threshold("reordered:0").crossed(of) is None
    assert parse_threshold("residual:+1%").crossed(of) is None


@pytest.mark.parametrize(
    "text",
    ["", "bubble", "bubble:5", "bubble:+5ms", "makespan:+5", "makespan:-5%", "missing:1%", "speed:+5%", "slip:x%"],
)
def test_what_is_no_threshold(text: str) -> None:
    with pytest.raises(ConfigError, match="--fail-on"):
        parse_threshold(text)
