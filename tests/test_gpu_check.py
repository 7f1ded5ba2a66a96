"""The script for machines with a GPU does the same on a CPU, where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the script is run by itself")
def test_gpu_check_on_the_cpu(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["bash", "bench/gpu_check.sh", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    pattern = (
        r"^\| ([a-z0-9-]+)( aligned| dualpipe)? \| (sleep|transformer|moe) \| bit-equal \|.*\| (none|[\d.]+ [\d.]+) \|"
    )
    rows = re.findall(pattern, table, re.MULTILINE)
    assert len(rows) == 19 == len(table.splitlines()) - 4
    assert {name for name, order, _, _ in rows if not order} == {"zb-h1", "zbv", "dualpipev", "moe-1f1b", "gpipe"}
    in_parts = {(name, order, workload) for name, order, workload, exposed in rows if exposed != "none"}
    assert in_parts == {
        (name, order, workload)
        for name in ("dualpipev", "moe-1f1b")
        for order in (" aligned", " dualpipe")
        for workload in ("sleep", "moe")
    }
