"""Runs that several tests look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute import RunConfig, RunResult, run
from pipetrace.execute.launcher import Launcher
from tests.execute.processes import own_descendants

MS = 1_000_000


@pytest.fixture(scope="session")
def sleep_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """ZB-H1 with the sleep workload, 4 ranks, 6 microbatches, 2 profiled steps."""
    folder: Path = tmp_path_factory.mktemp("sleep") / "new" / "run"
    costs = Costs(StageCosts(F=3 * MS, I=2 * MS, W=1 * MS))
    config = RunConfig(costs=costs, steps=2, check=True)
    return run(pipetrace.build("zb-h1", 4, 6), config, folder)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """Forks the ranks of a module's runs from one process, which imports torch once for all of them."""
    before = own_descendants()
    with Launcher() as of:
        yield of
    assert own_descendants() <= before
