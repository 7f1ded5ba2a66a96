from __future__ import annotations

from pathlib import Path

import pytest

from pipetrace.errors import OutputError
from pipetrace.trace.run_folder import RUN_FILE, SCHEDULE_FILE, refuse_to_replace, trace_name


@pytest.mark.parametrize("name", [RUN_FILE, SCHEDULE_FILE, trace_name(0), trace_name(12)])
def test_what_a_run_left_is_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).touch()
    with pytest.raises(OutputError, match="is what was recorded"):
        refuse_to_replace([tmp_path / name], [])
    refuse_to_replace([tmp_path / "diff.html", tmp_path / "costs.toml"], [tmp_path])


def test_what_is_read_is_not_replaced_under_whatever_name(tmp_path: Path) -> None:
    trace = tmp_path / "mine.json"
    trace.touch()
    (tmp_path / "link.json").symlink_to(trace)
    with pytest.raises(OutputError, match=r"link\.json is what was recorded"):
        refuse_to_replace([tmp_path / "link.json"], [trace])
    refuse_to_replace([tmp_path / "rank0_trace.json.gz"], [trace])
