"""Our CSVs in torch's own runtime: they load, train, and give the gradients of a single process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetrace.passes import add_communication
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.trace.torch_csv import write_csv

pytest.importorskip("torch", reason="torch is not installed")

RANKS, MICROBATCHES, TIMEOUT = 4, 8, 150
NAMES = ("zb-h1", "zbv", "interleaved", "interleaved-zb", "dualpipev")
LISTED = ("zb-h1", "zbv", "dualpipev")
"""Those whose sends and receives are given too, instead of torch's deriving them."""


def run_ranks(folder: Path) -> None:
    """Runs p processes of `torch_rank`, all of which are gone afterwards, whatever happens."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = []
    try:
        for rank in range(RANKS):
            with (folder / f"rank{rank}.log").open("w") as log:
                command = [sys.executable, "-m", "tests.schedules.torch_rank", str(folder), str(rank)]
                root = Path(__file__).parents[2]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=root, env=environment))
        deadline = time.monotonic() + TIMEOUT
        while any(process.poll() is None for process in processes):
            # One that failed leaves the others waiting for it.
            if time.monotonic() > deadline or any(process.poll() for process in processes):
                break
            time.sleep(0.05)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
    logs = "\n".join((folder / f"rank{rank}.log").read_text()[-2000:] for rank in range(RANKS))
    assert codes == [0] * RANKS, f"ranks ended with {codes} (None: killed after {TIMEOUT} s or another's end):\n{logs}"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[float, float]]]:
    """For each CSV and parameter of all stages: largest difference of its gradient, largest gradient."""
    folder = tmp_path_factory.mktemp("torch")
    runs = []

    def add(name: str, schedule: Schedule, format_: str) -> None:
        file, stage_ranks = f"{name}.{format_}.csv", list(schedule.placement.table[0])
        write_csv(schedule, folder / file)
        runs.append({"file": file, "format": format_, "microbatches": MICROBATCHES, "stage_ranks": stage_ranks})

    for name in NAMES:
        add(name, build(name, RANKS, MICROBATCHES), "compute_only")
    for name in LISTED:
        add(name, add_communication(build(name, RANKS, MICROBATCHES)), "compute_comms")
    (folder / "runs.json").write_text(json.dumps({"ranks": RANKS, "runs": runs}), encoding="utf-8")
    run_ranks(folder)
    merged: dict[str, dict[str, tuple[float, float]]] = {}
    for rank in range(RANKS):
        for file, found in json.loads((folder / f"rank{rank}.json").read_text()).items():
            merged.setdefault(file, {}).update(found)
    return merged


@pytest.mark.parametrize(
    "file", [f"{name}.compute_only.csv" for name in NAMES] + [f"{name}.compute_comms.csv" for name in LISTED]
)
def test_gradients_equal_those_of_a_single_process(
    results: dict[str, dict[str, tuple[float, float]]], file: str
) -> None:
    stages = RANKS if file.startswith("zb-h1") else 2 * RANKS
    assert len(results[file]) == 4 * stages
    for parameter, (difference, largest) in results[file].items():
        assert largest > 0, parameter
        assert difference == 0, parameter
