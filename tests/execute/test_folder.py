from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import pipetrace
from pipetrace.errors import OutputError, RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.folder import claim, error_name
from pipetrace.execute.runner import describe
from pipetrace.trace.run_folder import DIFF_PAGE, DIFF_TRACE, RUN_FILE, SCHEDULE_FILE, read_run_info, trace_name

SCHEDULE = pipetrace.build("1f1b", 2, 3)
INFO = describe(SCHEDULE, RunConfig())
OTHER = describe(SCHEDULE, RunConfig(steps=17))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def break_run(folder: Path, leaving: str) -> None:
    """A run that breaks with one file written."""

    def run() -> None:
        with claim(folder, SCHEDULE, OTHER) as claimed:
            (claimed.staging / leaving).write_text("new")
            raise RunError("broken")

    with pytest.raises(RunError, match="broken"):
        run()


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with a run of old, and a file that no run made."""
    with claim(tmp_path, SCHEDULE, INFO) as claimed:
        for name in (trace_name(0), trace_name(17), error_name(2)):
            (claimed.staging / name).write_text("old")
    for name in (DIFF_PAGE, DIFF_TRACE, "notes.txt"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with claim(folder, SCHEDULE, INFO) as claimed:
        assert not claimed.replaces
    assert sorted(path.name for path in folder.iterdir()) == [RUN_FILE, SCHEDULE_FILE]
    assert read_run_info(folder) == INFO


def test_an_earlier_run_goes_when_the_new_one_has_ended_and_other_files_stay(earlier: Path) -> None:
    before = contents(earlier)
    with claim(earlier, SCHEDULE, OTHER) as claimed:
        (claimed.staging / trace_name(0)).write_text("new")
        (claimed.staging / (trace_name(1) + ".partial")).write_text("half")
        assert claimed.replaces
        assert {name: text for name, text in before.items() if (earlier / name).read_bytes() == text} == before
    assert sorted(path.name for path in earlier.iterdir()) == ["notes.txt", trace_name(0), RUN_FILE, SCHEDULE_FILE]
    assert (earlier / trace_name(0)).read_text() == "new"
    assert read_run_info(earlier) == OTHER


def test_a_run_that_recorded_nothing_leaves_the_earlier_one(earlier: Path) -> None:
    before = contents(earlier)
    break_run(earlier, error_name(1))
    assert contents(earlier) == before


def test_what_a_broken_run_recorded_takes_the_place_of_the_earlier_one(earlier: Path) -> None:
    break_run(earlier, trace_name(1))
    assert sorted(contents(earlier)) == ["notes.txt", trace_name(1), RUN_FILE, SCHEDULE_FILE]
    assert read_run_info(earlier) == OTHER


def test_a_disk_that_is_full_at_the_start_leaves_the_earlier_run(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(earlier)

    def full(_schedule: object, path: Path) -> None:
        raise OutputError(f"{path} cannot be written: No space left on device")

    monkeypatch.setattr("pipetrace.execute.folder.write_csv", full)
    with (
        pytest.raises(OutputError, match=f"{earlier}/{SCHEDULE_FILE} cannot be written"),
        claim(earlier, SCHEDULE, OTHER),
    ):
        pass
    assert contents(earlier) == before
    new = earlier / "a" / "b"
    with pytest.raises(OutputError), claim(new, SCHEDULE, INFO):
        pass
    assert contents(earlier) == before


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    with claim(tmp_path, SCHEDULE, INFO) as claimed:
        with pytest.raises(OutputError, match="another run is writing into"), claim(tmp_path, SCHEDULE, OTHER):
            pass
        (claimed.staging / trace_name(0)).write_text("first")
    assert read_run_info(tmp_path) == INFO
    with claim(tmp_path, SCHEDULE, OTHER):
        pass


def test_what_a_killed_run_left_hidden_goes(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with claim(tmp_path, SCHEDULE, INFO) as claimed:
            (claimed.staging / trace_name(0)).write_text("lost")
            os._exit(1)
    os.waitpid(child, 0)
    assert [path.name for path in tmp_path.iterdir()] != []
    with claim(tmp_path, SCHEDULE, OTHER) as claimed:
        assert not claimed.replaces
    assert sorted(contents(tmp_path)) == [RUN_FILE, SCHEDULE_FILE]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_goes_during_a_run_is_told_in_one_line(tmp_path: Path, *, replaced: bool) -> None:
    folder = tmp_path / "run"

    def lose() -> None:
        with claim(folder, SCHEDULE, INFO):
            shutil.rmtree(folder)
            if replaced:
                folder.mkdir()

    with pytest.raises(OutputError, match="cannot be written any more") as caught:
        lose()
    assert "\n" not in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == (["run"] if replaced else [])
    assert not replaced or not any(folder.iterdir())


@pytest.mark.parametrize("content", [None, "[tool]\n", "no toml"])
def test_a_folder_with_something_else_is_refused_and_left_alone(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    if content is not None:
        (tmp_path / RUN_FILE).write_text(content)
    before = contents(tmp_path)
    with (
        pytest.raises(OutputError, match="is not empty and holds no run") as caught,
        claim(tmp_path, SCHEDULE, INFO),
    ):
        pass
    assert caught.value.hint
    assert contents(tmp_path) == before


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    for folder in (path, path / "below"):
        with pytest.raises(OutputError, match="file"), claim(folder, SCHEDULE, INFO):
            pass


@pytest.mark.parametrize("name", ["/proc/nowhere", "/tmp/a\0b"])
def test_a_folder_that_cannot_be_made_is_named(name: str) -> None:
    with pytest.raises(OutputError, match=name[:5]), claim(Path(name), SCHEDULE, INFO):
        pass
