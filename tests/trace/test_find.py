from __future__ import annotations

import shutil
from pathlib import Path

import pipetrace
from pipetrace.trace.find import find_traces
from pipetrace.trace.formats import write_trace
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import write_run


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("")


def test_of_each_rank_the_most_telling_name_is_taken_and_the_rest_told(tmp_path: Path) -> None:
    touch(
        tmp_path, "rank0_trace.json.gz", "rank0.json", "rank1.json.gz", "host_7.pt.trace.json", "run.toml", "notes.md"
    )
    (asked,) = find_traces([tmp_path])
    assert [file.name for file in asked.files] == ["rank0_trace.json.gz", "rank1.json.gz"]
    assert asked.not_read([]) == (
        f"{tmp_path}: not read: host_7.pt.trace.json (its name tells no rank, as others do), "
        "rank0.json (rank0_trace.json.gz is taken for rank 0)"
    )


def test_where_no_name_tells_a_rank_all_are_read(tmp_path: Path) -> None:
    touch(tmp_path, "host_7.pt.trace.json", "host_8.pt.trace.json")
    (asked,) = find_traces([tmp_path])
    assert len(asked.files) == 2
    assert asked.not_read([]) is None


def test_a_file_that_nobody_recorded_is_told_of(tmp_path: Path) -> None:
    ideal = pipetrace.simulate(pipetrace.build("gpipe", 2, 2), pipetrace.parse_costs("F=1,B=2"))
    write_run(tmp_path, ideal)
    assert not any("not read" in note for note in read_recording([tmp_path]).notes)
    write_trace(tmp_path / "rank2.json", [("ideal", ideal)])
    shutil.copy(tmp_path / "rank1_trace.json.gz", tmp_path / "copy.json.gz")
    (note,) = [note for note in read_recording([tmp_path]).notes if "not read" in note]
    assert note.endswith(
        "not read: copy.json.gz (its name tells no rank, as others do), rank2.json (pipetrace drew it)"
    )
