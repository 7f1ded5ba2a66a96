"""PIPETRACE_NO_SKIPS makes every skip a failure, wherever it happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = {
    "test_in_a_test.py": "import pytest\ndef test_it():\n    pytest.skip('no browser')\n",
    "test_in_a_module.py": "import pytest\npytest.importorskip('there_is_no_such_module')\ndef test_it(): pass\n",
    "test_by_mark.py": "import pytest\npytestmark = pytest.mark.skip('not now')\ndef test_it(): pass\n",
}


@pytest.mark.parametrize("name", TESTS)
def test_a_skip_is_a_failure(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(TESTS[name])
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    environment = {key: value for key, value in os.environ.items() if key != "PIPETRACE_NO_SKIPS"}
    for no_skips, word in (
        ({}, "1 skipped"),
        ({"PIPETRACE_NO_SKIPS": "1"}, "was skipped, and PIPETRACE_NO_SKIPS is set"),
    ):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path],
            cwd=tmp_path, env=environment | no_skips, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert word in ran.stdout, ran.stdout
        assert (ran.returncode in (1, 2)) is bool(no_skips)
