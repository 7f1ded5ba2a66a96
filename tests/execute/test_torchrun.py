from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipetrace.errors import RunError
from pipetrace.execute.torchrun import Elastic, elastic
from pipetrace.trace.torch_profiler import read_recording
from tests.execute.processes import end_within, own_descendants

ROOT = Path(__file__).parent.parent.parent


def under_torchrun(processes: int, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`pipetrace run` of a tiny model as torchrun starts it, on this machine."""
    model = ("-m", "4", "--workload", "transformer", "--hidden", "16", "--heads", "2", "--steps", "1")
    return launched(processes, "-m", "pipetrace", "run", "zbv", "-p", "2", *model, "-o", str(folder), *options)


def launched(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What torchrun starts."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--nnodes", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *arguments),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def test_every_process_is_a_rank(tmp_path: Path) -> None:
    ran = under_torchrun(2, tmp_path, "--check")
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.count("check passed") == 1
    assert ran.stderr.count("the run lies in") == 1
    recording = read_recording([tmp_path])
    assert recording.ranks == 2
    assert not recording.missing
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank0_trace.json.gz",
        "rank1_trace.json.gz",
        "run.toml",
        "schedule.csv",
    ]


def test_a_rank_that_is_gone_is_one_line_on_the_others(tmp_path: Path) -> None:
    killing = (
        "import os, signal, sys; sys.argv = sys.argv[1:]\n"
        "from pipetrace.cli import main\n"
        "from pipetrace.execute.step import Step\n"
        "play, steps = Step.run, []\n"
        "def run(self):\n"
        "    steps.append(1)\n"
        "    if len(steps) == 3 and os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    play(self)\n"
        "Step.run = run\n"
        "main()\n"
    )
    (tmp_path / "killing.py").write_text(killing)
    options = ("--costs", "F=20,I=20,W=20", "-o", str(tmp_path / "run"))
    ran = launched(2, str(tmp_path / "killing.py"), "pipetrace", "run", "zb-h1", "-p", "2", "-m", "4", *options)
    assert ran.returncode != 0
    told = re.search(r"error: rank 0 .+ step \d+ and (raised|was told to end)", ran.stderr)
    assert told, ran.stderr[-3000:]
    assert "traceback" not in told[0].lower()
    assert (tmp_path / "run" / "rank0_trace.json.gz").is_file()


def test_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    before = own_descendants()
    ran = under_torchrun(3, tmp_path)
    assert ran.returncode != 0
    assert "torchrun started 3 processes, but the run has 2 ranks" in ran.stderr
    assert not list(tmp_path.iterdir())
    assert end_within(own_descendants() - before, 60)


def test_what_torchrun_says() -> None:
    said = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    assert elastic(said) == Elastic(rank=5, local_rank=1, world=8)
    assert elastic({"RANK": "5"}) is None
    for broken in (said | {"RANK": "x"}, {"TORCHELASTIC_RUN_ID": "x"}):
        with pytest.raises(RunError, match="torchrun's environment is not whole"):
            elastic(broken)
