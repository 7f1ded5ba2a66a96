from __future__ import annotations

from pathlib import Path

import pytest

import pipetrace
from pipetrace.errors import OutputError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.folder import error_name, prepare_folder
from pipetrace.execute.runner import describe
from pipetrace.trace.run_folder import RUN_FILE, SCHEDULE_FILE, read_run_info, trace_name

SCHEDULE = pipetrace.build("1f1b", 2, 3)
INFO = describe(SCHEDULE, RunConfig())


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    prepare_folder(folder, SCHEDULE, INFO)
    assert sorted(path.name for path in folder.iterdir()) == [RUN_FILE, SCHEDULE_FILE]
    assert read_run_info(folder) == INFO


def test_an_earlier_run_goes_and_other_files_stay(tmp_path: Path) -> None:
    prepare_folder(tmp_path, SCHEDULE, INFO)
    for name in (trace_name(0), trace_name(17), trace_name(3) + ".partial", error_name(2), "notes.txt"):
        (tmp_path / name).write_text("x")
    prepare_folder(tmp_path, SCHEDULE, INFO)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", RUN_FILE, SCHEDULE_FILE]


@pytest.mark.parametrize("content", [None, "[tool]\n", "no toml"])
def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    if content is not None:
        (tmp_path / RUN_FILE).write_text(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError, match="is not empty and holds no run") as caught:
        prepare_folder(tmp_path, SCHEDULE, INFO)
    assert caught.value.hint
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    for folder in (path, path / "below"):
        with pytest.raises(OutputError, match="file"):
            prepare_folder(folder, SCHEDULE, INFO)


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(OutputError, match="/proc"):
        prepare_folder(Path("/proc/nowhere"), SCHEDULE, INFO)
