from __future__ import annotations

import json

import pytest

from pipetrace.schedules import get, names
from tests.cli.command import misuse, pipetrace

COMMANDS = ("list", "gen", "show", "compare", "run", "read", "diff", "fit", "open")


def test_two_lines_a_schedule_at_80_columns() -> None:
    lines = pipetrace("list").stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[2::2]] == names()
    assert [line.strip() for line in lines[3::2]] == [get(name).paper for name in names()]


def test_a_line_a_schedule_where_there_is_room() -> None:
    lines = pipetrace("list", COLUMNS="200").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *names()]
    (interleaved,) = (line for line in lines if line.startswith("interleaved "))
    assert interleaved.split()[1:4] == ["loop", "-v", "--group"]
    assert interleaved.endswith("arXiv:2104.04473")


def test_a_line_a_field_where_there_is_none() -> None:
    lines = pipetrace("list", COLUMNS="40").stdout.splitlines()
    assert max(map(len, lines)) <= 40
    assert [line for line in lines if not line.startswith(" ")] == names()
    told = " ".join(" ".join(lines).split())
    for name in names():
        assert f"limits: {get(name).limits} paper: {get(name).paper}" in told


def test_json() -> None:
    document = json.loads(pipetrace("list", "--json").stdout)
    assert document["schema"] == 1
    (gpipe,) = (entry for entry in document["schedules"] if entry["name"] == "gpipe")
    assert (gpipe["placement"], gpipe["options"]) == ("loop", ["backward"])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_for_every_command(command: str) -> None:
    ran = pipetrace(command, "--help")
    assert f"Example: pipetrace {command}" in " ".join(ran.stdout.split())
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_unknown_command() -> None:
    assert "generate" in misuse("generate")
