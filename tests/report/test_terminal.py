"""What is printed, as it arrives on a terminal, in a pipe and under NO_COLOR."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from pipetrace import Action, Costs, Kind, StageCosts, build, simulate
from pipetrace.diff import Analysis, Diff, diff
from pipetrace.report.terminal import has_few_colours, print_diff, print_schedule, print_schedule_tables, wants_colour
from pipetrace.schedule import Schedule


def console(*, terminal: bool = False, width: int = 80) -> Console:
    # What a developer's shell has set must not matter.
    environ = {"TERM": "xterm-256color"}
    return Console(
        file=io.StringIO(),
        force_terminal=terminal,
        color_system="truecolor" if terminal else None,
        width=width,
        no_color=False,
        _environ=environ,
    )


def printed(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


@pytest.fixture(scope="module")
def slow_stage() -> Diff:
    schedule = build("zb-h1", 4, 8)
    costs = Costs(stages={2: StageCosts(1_510_000, 1_480_123, 1_500_001)}, p2p=120_000)
    return diff(simulate(schedule), simulate(schedule, costs))


def run(of: Diff, schedule: Schedule | None = None, **other: Any) -> Any:
    values = {"missing": [], "notes": []} | other
    return SimpleNamespace(
        diff=of,
        recording=SimpleNamespace(**values),
        facts=[("Traces", "a [b]/run")],
        base_title="ideal",
        held_against=None,
        analysis=Analysis(of, schedule or build("zb-h1", 4, 8), Costs()),
    )


def test_a_schedule_in_a_pipe_is_plain_text() -> None:
    to = console()
    schedule = build("zb-h1", 4, 8)
    print_schedule(schedule, simulate(schedule), console=to)
    text = printed(to)
    assert "\x1b" not in text
    assert "F0F1F2F3" in text
    assert "11.1 %" in text
    assert "in-span idle" in text
    assert "global idle" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_gets_colours_and_no_color_none() -> None:
    schedule = build("zb-h1", 4, 8)
    to = console(terminal=True)
    print_schedule(schedule, simulate(schedule), console=to)
    assert "48;2;0;114;178" in printed(to)
    to = console(terminal=True)
    to.no_color = True
    assert not wants_colour(to)
    print_schedule(schedule, simulate(schedule), console=to)
    assert "F0F1F2F3" in printed(to)
    assert "48;" not in printed(to)


def test_tables_alone() -> None:
    to = console()
    schedule = build("gpipe", 2, 3)
    print_schedule_tables(schedule, simulate(schedule), console=to)
    assert printed(to).startswith("schedule")
    assert "F0" not in printed(to)


def test_a_diff_leads_from_headline_to_the_worst_slips(slow_stage: Diff) -> None:
    to = console()
    print_diff(run(slow_stage, missing=["rank [b]3[/b]"], notes=["clocks [red]not[/red] aligned"]), console=to)
    text = printed(to)
    assert "+11.891 ms  (+44.0 %)" in text
    assert "! rank [b]3[/b]" in text
    assert "note: clocks [red]not[/red] aligned" in text
    assert "a [b]/run" in text
    assert text.index("ideal makespan") < text.index("idle time of each rank") < text.index("the 10 worst slips")
    assert "2W7" in text
    assert "missing (" not in text
    # The verdict comes before everything, its words as they were made.
    assert text.startswith("Rank 2's compute takes 1.50 times as long as the costs say")
    assert text.index("a slow stage 2") < text.index("rank 0 F0")
    assert "+ compute of rank 2" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_does_not_match_is_listed_first() -> None:
    schedule = build("gpipe", 2, 20)
    ideal = simulate(schedule)
    gone = ideal.where(ideal.code != Action(Kind.F, 1, 3).code)
    to = console()
    print_diff(run(diff(ideal, gone), schedule), console=to)
    text = printed(to)
    assert "missing (1): 1F3" in text
    assert text.index("missing") < text.index("idle time of each rank")
    to = console()
    print_diff(run(diff(ideal, ideal.where(ideal.rank == 0)), schedule), console=to)
    assert "and 28 more" in printed(to)


def test_sixteen_colours_are_the_terminals_own_and_keep_the_letters() -> None:
    to = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="auto",
        width=80,
        no_color=False,
        _environ={"TERM": "xterm"},
    )
    assert has_few_colours(to)
    schedule = build("zb-h1", 4, 8)
    print_schedule(schedule, simulate(schedule), console=to)
    text = printed(to)
    assert "\x1b[97;44mF0F1F2F3\x1b[0m" in text
    assert "\x1b[30;43mI0\x1b[0m\x1b[30;42mW0\x1b[0m" in text
    assert "48;" not in text
