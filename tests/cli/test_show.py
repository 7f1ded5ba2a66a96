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
