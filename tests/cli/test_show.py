from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.command import pipetrace


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (16, 32)])
def test_chart_fits_the_terminal(name: str, p: int, m: int) -> None:
    ran = pipetrace("show", name, "-p", p, "-m", m)
    assert ran.returncode == 0, ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert "\x1b" not in ran.stdout
    assert ran.stderr == ""


def test_json_is_that_of_gen() -> None:
    assert json.loads(pipetrace("show", "zb-h1", "--json").stdout) == json.loads(
        pipetrace("gen", "zb-h1", "--json").stdout
    )


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m pipetrace show 1f1b -p 16 -m 400 | head -n 1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr == ""
    assert ran.returncode == 0


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_loses_no_figures(columns: int) -> None:
    wide = pipetrace("show", "zbv", "--verbose").stdout
    lines = pipetrace("show", "zbv", "--verbose", COLUMNS=str(columns)).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    for figure in ("5.22", "5.53", "6.10", "6.29"):  # of the last columns
        assert figure in wide
        assert figure in "\n".join(lines)


def test_a_terminal_that_does_not_say_how_wide_it_is() -> None:
    assert pipetrace("show", "1f1b", COLUMNS="0").stdout == pipetrace("show", "1f1b").stdout
    assert pipetrace("gen", "1f1b", COLUMNS="0").stdout
    assert "makespan" in pipetrace("compare", "1f1b", COLUMNS="0").stdout
    assert "Example" in pipetrace("gen", "--help", COLUMNS="0").stdout
    assert pipetrace("show", "1f1b", COLUMNS="1").stdout == pipetrace("show", "1f1b", COLUMNS="24").stdout


def test_a_terminal_that_knows_ascii_only() -> None:
    for command in (["show", "zbv"], ["compare", "zbv", "1f1b"]):
        ran = pipetrace(*command, PYTHONIOENCODING="ascii")
        assert ran.returncode == 0
        assert "\\" not in ran.stdout
        assert "sum" in ran.stdout
        assert max(map(len, ran.stdout.splitlines())) < 90
