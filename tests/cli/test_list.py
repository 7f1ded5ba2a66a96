from __future__ import annotations

from pipetrace.schedules import names
from tests.cli.command import misuse, pipetrace


def test_list_has_a_line_for_each_schedule() -> None:
    lines = pipetrace("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert all("arXiv" in line and len(line) <= 120 for line in lines)


def test_help_has_an_example_for_every_command() -> None:
    for command in ("list", "gen", "show", "run", "read", "diff", "open"):
        assert f"Example: pipetrace {command}" in " ".join(pipetrace(command, "--help").stdout.split())


def test_unknown_command() -> None:
    assert "generate" in misuse("generate")
