"""Global ranks as (replica, pipeline rank): from a mesh, from process groups, from the run itself."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.costs import Costs
from pipetrace.errors import TraceError
from pipetrace.trace.places import of_groups, of_mesh, parse_mesh, pipeline_group
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, event, trace_of


@given(st.lists(st.integers(1, 4), min_size=0, max_size=2), st.integers(1, 5), st.lists(st.integers(1, 4), max_size=2))
def test_a_mesh_counts_as_torch_does(before: list[int], p: int, behind: list[int]) -> None:
    """torch's DeviceMesh is arange(world).reshape(sizes); a pipeline varies the pp index alone."""
    sizes = [*before, p, *behind]
    mesh = {f"a{i}": size for i, size in enumerate(sizes)}
    mesh = {("pp" if i == len(before) else name): size for i, (name, size) in enumerate(mesh.items())}
    grid = np.arange(np.prod(sizes)).reshape(sizes)
    pipelines = np.moveaxis(grid, len(before), -1).reshape(-1, p)
    shape = of_mesh(mesh, int(grid.size))
    assert shape.pipelines == tuple(map(tuple, pipelines.tolist()))
    for replica, members in enumerate(pipelines.tolist()):
        assert [shape.place(rank) for rank in members] == [replica * p + rank for rank in range(p)]


@pytest.mark.parametrize("text", ["", "pp", "pp=0", "dp=2", "dp=2,dp=2,pp=2", "pp=2,pipeline=2", "pp=-1", "pp=2;dp=2"])
def test_what_is_no_mesh(text: str) -> None:
    with pytest.raises(TraceError):
        parse_mesh(text)


def test_a_mesh_of_another_size_is_refused() -> None:
    assert parse_mesh("dp=2, pp=4") == {"dp": 2, "pp": 4}
    with pytest.raises(TraceError, match=r"mesh dp=2,pp=4 is of 8 processes, but the traces are of 6"):
        of_mesh({"dp": 2, "pp": 4}, 6)


def test_groups_that_do_not_go_together_tell_nothing() -> None:
    assert of_groups({0: (0, 2), 1: (1, 3)}) is not None
    for groups in ({0: (0, 1), 1: (1, 2)}, {0: (0, 1), 2: (2, 3, 4)}, {5: (0, 1)}):
        assert of_groups(groups) is None


def test_which_group_is_the_pipelines() -> None:
    config: list[Any] = [
        {"pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
        {"pg_desc": "mesh_dp", "ranks": [0, 1]},
        {"pg_desc": "mesh_pp", "ranks": [0, 2]},
        "odd",
    ]
    assert pipeline_group({"rank": 0, "pg_config": config}) == (0, 2)
    assert pipeline_group({"rank": 1, "pg_config": config}) is None
    assert pipeline_group({"rank": 0, "pg_config": config[:2]}) is None
    assert pipeline_group(
        {"rank": 0, "pg_config": [{"pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": [0, 3]}]}
    ) == (0, 3)
    assert pipeline_group({"rank": 0, "pg_config": 3}) is None


def write_cluster(folder: Path, *, groups: bool) -> None:
    """dp=2, pp=2, tp=2: the second data-parallel copy takes twice as long."""
    for rank in range(8):
        stage, dp = rank // 2 % 2, rank // 4
        events = [
            event(f"PP:{stage}F0", 10 * stage, (10 + 10 * stage) * (1 + dp)),
            event(f"PP:{stage}B0", 90, 95 + 50 * dp),
        ]
        trace = trace_of(rank, 8, events)
        if groups:
            peer = rank - 2 if stage else rank + 2
            trace["distributedInfo"]["pg_config"] = [{"pg_desc": "mesh_pp", "ranks": sorted([rank, peer])}]
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(dump(trace).encode()))


@pytest.mark.parametrize("groups", [True, False])
def test_replicas_of_a_cluster(tmp_path: Path, groups: bool) -> None:
    write_cluster(tmp_path, groups=groups)
    mesh = None if groups else {"dp": 2, "pp": 2, "tp": 2}
    if not groups:
        with pytest.raises(TraceError, match="several pipelines") as caught:
            read_recording([tmp_path])
        assert "--mesh" in caught.value.hint
    recording = read_recording([tmp_path], mesh=mesh)
    assert (recording.ranks, recording.replicas) == (2, 4)
    assert [(f.rank, f.replica, f.pipeline_rank) for f in recording.found[:4]] == [
        (0, 0, 0),
        (2, 0, 1),
        (1, 1, 0),
        (3, 1, 1),
    ]
    assert sorted(set(recording.steps[0].replica.tolist())) == [0, 1, 2, 3]
    words = "the process groups of the pipeline" if groups else "mesh dp=2,pp=2,tp=2"
    assert any(words in note for note in recording.notes)
    slowest = read_recording([tmp_path], mesh=mesh, replica="slowest")
    assert slowest.replicas == 1
    assert [f.rank for f in slowest.found] == [4, 6]
    assert any("its median step takes" in note for note in slowest.notes)
    other = read_recording([tmp_path], mesh=mesh, replica="3")
    assert [f.rank for f in other.found] == [5, 7]
    with pytest.raises(TraceError, match="there is no replica '4'"):
        read_recording([tmp_path], mesh=mesh, replica="4")


def test_a_rank_outside_of_the_mesh(tmp_path: Path) -> None:
    trace = {"traceEvents": [event("PP:0F0", 0, 1)]}
    (tmp_path / "rank9.json").write_text(dump(trace))
    with pytest.raises(TraceError, match="rank 9 is in none of the 2 pipelines"):
        read_recording([tmp_path], mesh={"dp": 2, "pp": 2})


def test_a_mesh_that_contradicts_the_run_is_told(tmp_path: Path) -> None:
    run = RunInfo("1f1b", 2, 1, "sleep", Costs(), False, 1).to_dict()
    for rank in range(2):
        trace = trace_of(rank, 2, [event(f"PP:{rank}F0", 0, 1)], pipetrace={"schema": 1, "rank": rank, "run": run})
        (tmp_path / f"rank{rank}.json").write_text(dump(trace))
    line = "mesh dp=2,pp=1 makes 2 pipelines of 1 ranks, but the run says of itself that it had 1 of 2"
    assert line in read_recording([tmp_path], mesh={"dp": 2, "pp": 1}).notes
    assert not any("of itself" in note for note in read_recording([tmp_path], mesh={"pp": 2}).notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pp=99999999999", "is of 99999999999 processes: more than 1,000,000 are none"),
        ("pp=999999,dp=999999", "is of 999998000001 processes"),
        ("pp=0", "pp has no size"),
    ],
)
def test_sizes_of_a_mesh(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        parse_mesh(text)


def test_metadata_that_contradicts_itself_is_told(tmp_path: Path) -> None:
    group = {"pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}
    trace = trace_of(0, 2, [event("PP:0F0", 0, 1)])
    trace["distributedInfo"]["pg_config"] = [group]
    for name, world, message in (
        ("rank0.json", 2, None),
        ("rank1.json", 2, "rank1.json: it is called after rank 1, but says that it is of rank 0, and is taken to be"),
        ("rank0.json", 3, "rank0.json: its world size is 3, but a process group 'default_pg' has size 2 and rank 1"),
    ):
        trace["distributedInfo"]["world_size"] = world
        (tmp_path / name).write_text(dump(trace))
        notes = read_recording([tmp_path / name]).notes
        assert message in notes if message is not None else not any(note.startswith("rank0.json") for note in notes)
