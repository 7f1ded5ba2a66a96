"""Every schedule, run with real gradients in each way of waiting, in processes that one supervisor forks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pipetrace
from pipetrace.execute import RunConfig, run
from pipetrace.execute.launcher import Launcher
from pipetrace.schedules import names
from pipetrace.waiting import Wait

TINY = RunConfig("transformer", hidden=8, heads=1, sequence=4, batch=1, steps=1, warmup=0, check=True)


@pytest.mark.parametrize("wait", list(Wait))
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", names())
def test_gradients_are_those_of_one_process(
    name: str, ranks: int, wait: Wait, launcher: Launcher, tmp_path: Path
) -> None:
    schedule = pipetrace.build(name, ranks, 8)
    result = run(schedule, replace(TINY, wait=wait), tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    # Where the list is kept, so is the order of every sum of more than two.
    if wait is not Wait.DATAFLOW:
        assert result.check.bit_equal, result.check.text
