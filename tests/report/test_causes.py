"""What idle time waited for, as printed."""

from __future__ import annotations

import pytest
from rich.table import Table

from pipetrace import Costs, StageCosts, build, parse_costs, simulate
from pipetrace.action import parse
from pipetrace.metrics import bubbles, sizes_from_dict
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.causes import cause_tables, short
from pipetrace.report.terminal import print_schedule, print_schedule_tables
from pipetrace.report.units import MILLISECONDS
from pipetrace.schedules import names
from pipetrace.timeline import Timeline
from tests.report.test_terminal import console, printed


def shown(name: str, p: int, m: int, costs: Costs, *, verbose: bool = True, **sizes: str) -> str:
    to, schedule = console(), build(name, p, m)
    print_schedule_tables(
        schedule,
        simulate(schedule, costs),
        costs=costs,
        sizes=sizes_from_dict(sizes) if sizes else None,
        verbose=verbose,
        console=to,
    )
    return printed(to)


@pytest.mark.parametrize("name", names())
def test_all_fits_80_columns(name: str) -> None:
    text = shown(name, 8, 32, parse_costs("F=10.123,I=11.5,W=7.25", p2p=123_456), parameters="12.3GiB", gradient="7MiB")
    assert max(map(len, text.splitlines())) <= 80
    # Nothing is cut off but where something was left out on purpose.
    assert all(
        line.strip().startswith("…") or "…" not in line or "(" in line or ", …" in line for line in text.split("\n")
    )


def test_causes_come_only_when_asked_for() -> None:
    plain = shown("1f1b", 4, 8, Costs(), verbose=False)
    assert "critical path" not in plain
    assert "by cause" not in plain
    assert "warm-up" in plain
    assert "GiB" not in plain


def test_phases_beside_means_and_memory() -> None:
    text = shown("1f1b", 2, 4, Costs(), verbose=False, activation_freed_at_weight="2GiB", parameters="10GiB")
    lines = [line.split() for line in text.splitlines()]
    assert ["0", "2", "2", "0", "1", "1", "1.73", "1.73"] in lines
    assert ["1", "1", "0", "0", "2", "0", "0.80", "0.80"] in lines
    assert ["0", "10", "13.47", "14"] in lines
    assert "memory in GiB" in text


def test_the_path_stretch_by_stretch() -> None:
    text = shown("1f1b", 2, 4, Costs(StageCosts(1_000_000, 1_000_000, 1_000_000), p2p=500_000))
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "0.0 0 0F0 is the first" in rows
    assert "1.0 0.5 1 1F0 1B0 waits for F0 of stage 0 on rank 0" in rows
    assert "14.5 0.5 0 0B3 waits for B3 of stage 1 on rank 1" in rows
    assert "critical path in ms; 11.8 % transfers" in rows
    assert "2.5 2.0 rank 0 waits for B0 of stage 1 on rank 1, which runs on rank 1" in rows


def test_a_long_path_is_cut_in_the_middle() -> None:
    text = shown("interleaved", 8, 64, Costs(p2p=3_777))
    assert " more " in text
    assert text.count("waits for F0 of stage") >= 8
    assert len(text.splitlines()) < 120


def test_without_idle_time_there_is_only_the_path() -> None:
    text = shown("1f1b", 1, 2, Costs())
    assert "by cause" not in text
    assert "0F0 0B0 0F1 0B1" in text
    schedule = build("1f1b", 1, 2)
    assert cause_tables(schedule, Timeline.from_tiles(1, []), MILLISECONDS) == []


def test_causes_sum_to_the_global_idle_as_printed() -> None:
    costs = parse_costs("F=1,I=1,W=1", p2p=250_000)
    text = shown("zb-h1", 4, 8, costs)
    table = text[text.index("nothing yet") : text.index("global idle by cause")]
    rows = [line.split() for line in table.splitlines() if line[:1].isdigit()]
    idle = bubbles(simulate(build("zb-h1", 4, 8), costs)).global_idle
    assert [sum(map(float, row[1:])) for row in rows] == [ns / 1e6 for ns in idle]


def test_below_the_chart() -> None:
    to, schedule = console(), build("zb-h1", 4, 8)
    print_schedule(schedule, simulate(schedule), verbose=True, console=to)
    text = printed(to)
    assert text.index("F0F1F2F3") < text.index("bubble fraction") < text.index("critical path")


def test_pairs_are_short() -> None:
    assert short(parse("(0F1;d1:3B0)OVERLAP_F_B")) == "0F1&d1:3B0"


def test_parts_of_layers_go_on_from_lane_to_lane() -> None:
    """One line for the way through a rank, not one for each all-to-all on it."""
    costs = Costs(p2p=200_000)
    schedule = expand_moe(build("1f1b", 2, 1), Overlap(MoeOrder.SERIAL), costs)
    tables = cause_tables(schedule, simulate(schedule, costs), MILLISECONDS, costs)
    path = tables[-1]
    assert isinstance(path, Table)
    assert path.row_count == 3  # down on rank 0, there and back on rank 1, back on rank 0
