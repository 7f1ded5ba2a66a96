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
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (sleep|transformer) \| bit-equal \|", table, re.MULTILINE)
    assert {name for name, _ in rows} == {"zb-h1", "zbv", "dualpipev", "moe-1f1b", "gpipe"}
    assert len(rows) == 10
