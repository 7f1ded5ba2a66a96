from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import pipetrace as library
from pipetrace.trace.torch_csv import write_csv
from tests.cli.command import misuse, pipetrace, refusal
from tests.trace.recorded import dump, event, trace_of, write_run

TRACES = Path(__file__).parent.parent / "data" / "traces"


@pytest.mark.parametrize(
    ("folder", "ranks", "words"),
    [
        ("1f1b_pp2_mb4_mlp", 2, "no action is labelled on ranks 0, 1"),
        ("gpipe_pp2_mb4_mlp", 2, "torch gpipe"),
        ("rt-zbh1_pp4_mb8_mlp", 4, "the I of stage 0 (rank 0) does nothing"),
        ("synthetic_gpu_1f1b_pp4_mb8", 4, "GPU kernels were seen"),
        ("zbv_pp2_mb4_mlp", 2, "torch runtime"),
    ],
)
def test_ranks_actions_and_what_is_not_there(folder: str, ranks: int, words: str) -> None:
    ran = pipetrace("read", TRACES / folder, COLUMNS="200")
    assert ran.returncode == 0, ran.stderr
    assert f"{ranks} recorded of {ranks}" in ran.stdout
    assert words in ran.stdout
    assert "Traceback" not in ran.stderr


def test_without_labels_a_schedule_tells_what_is_what() -> None:
    ran = pipetrace("read", TRACES / "synthetic_gpu_1f1b_pp4_mb8", "--schedule", "1f1b", COLUMNS="200")
    assert ran.returncode == 0, ran.stderr
    assert "45.3 %" in ran.stdout
    assert "64 actions, confidence 100%" in ran.stdout
    assert "not found" not in ran.stdout
    assert "a step of 1f1b would have" in refusal(
        "read", TRACES / "1f1b_pp2_mb4_mlp", "--schedule", "1f1b", "-p", 2, "-m", 5
    )


def test_json() -> None:
    ran = pipetrace("read", TRACES / "zbv_pp2_mb4_mlp", "--json")
    document = json.loads(ran.stdout)
    assert document["schema"] == 1
    assert [found["counts"]["F"] for found in document["found"]] == [8, 8]
    (step,) = document["steps"]
    assert step["actions"] == 48
    assert step["makespan_ns"] == step["busy_ns"][0] + step["global_idle_ns"][0]


def test_a_rank_of_several_is_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "rank2.json.gz").write_bytes((TRACES / "rt-zbh1_pp4_mb8_mlp" / "rank2.json.gz").read_bytes())
    ran = pipetrace("read", tmp_path, COLUMNS="200")
    assert ran.returncode == 0
    assert "1 recorded of 4" in ran.stdout
    assert "not found:" in ran.stdout
    assert "of the 1 recorded of 4 ranks: Σ global idle / (1 × makespan)" in ran.stdout
    # Nothing is said of ranks that nothing is known of.
    (step,) = json.loads(pipetrace("read", tmp_path, "--json").stdout)["steps"]
    assert step["of_ranks"] == [2]
    assert len(step["busy_ns"]) == len(step["global_idle_ns"]) == len(step["in_span_idle_ns"]) == 1
    assert step["bubble_fraction"] == step["global_idle_ns"][0] / step["makespan_ns"]
    table = ran.stdout.partition("global idle   in-span idle")[2].partition("times in")[0]
    assert "not known" in table  # what it received was sent by ranks that were not recorded
    assert [line.split()[0] for line in table.splitlines() if line[:1].isdigit()] == ["2"]


def test_a_rank_without_labels_did_not_stand_idle(tmp_path: Path) -> None:
    for rank in range(4):
        content = gzip.decompress((TRACES / "rt-zbh1_pp4_mb8_mlp" / f"rank{rank}.json.gz").read_bytes())
        (tmp_path / f"rank{rank}.json").write_bytes(content.replace(b'"PP:', b'"part ') if rank == 1 else content)
    document = json.loads(pipetrace("read", tmp_path, "--json").stdout)
    (step,) = document["steps"]
    assert step["of_ranks"] == [0, 2, 3]
    assert step["bubble_fraction"] == sum(step["global_idle_ns"]) / (3 * step["makespan_ns"])
    assert document["not_found"][0].startswith("no action is labelled on rank 1")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rank0.json", b""),
        ("rank0.json", b"no json"),
        ("rank0.json", b"[1, 2"),
        ("rank0.json", b"{}"),
        ("rank0.json", b'{"traceEvents": 3}'),
        ("rank0.json", bytes(range(256))),
        ("rank0.json.gz", b"\x1f\x8b\x08\x00truncated"),
        ("rank0.json.gz", b"no gzip"),
    ],
)
def test_what_is_no_trace_gets_one_line(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert name in refusal("read", tmp_path / name)
    assert name in refusal("read", tmp_path)


def test_nothing_to_read(tmp_path: Path) -> None:
    assert "nowhere" in refusal("read", tmp_path / "nowhere")
    assert str(tmp_path) in refusal("read", tmp_path)
    assert "TRACES" in misuse("read")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_device_that_never_ends_is_not_read() -> None:
    for arguments in (["read"], ["gen", "--from"], ["gen", "1f1b", "--config"], ["gen", "1f1b", "--costs-file"]):
        assert "/dev/full: it is a device, no file" in refusal(*arguments, "/dev/full")


def test_labels_steps_mesh_and_replicas(tmp_path: Path) -> None:
    for rank in range(4):
        events = []
        for step in range(3):
            start = step * 1000
            events.append(event(f"ProfilerStep#{step + 5}", start, start + 900))
            events.append(event(f"fwd mb0 stage{rank % 2}", start + 10, start + 20 + 10 * step))
            events.append(event(f"bwd mb0 stage{rank % 2}", start + 500, start + 520 + rank // 2))
        (tmp_path / f"rank{rank}.json").write_text(dump(trace_of(rank, 4, events)))
    places = r"mb(?P<microbatch>\d+) stage(?P<stage>\d+)"
    patterns = ["--label", f"fwd {places}", "--label", f"bwd {places}"]
    assert "several pipelines" in refusal("read", tmp_path, *patterns)
    mesh = [*patterns, "--mesh", "dp=2,pp=2"]
    document = json.loads(pipetrace("read", tmp_path, *mesh, "--json").stdout)
    assert (document["ranks"], document["replicas"]) == (2, 2)
    assert [step["actions"] for step in document["steps"]] == [4] * 6
    assert document["found"][0]["labels"] == "--label"
    slow = json.loads(
        pipetrace("read", f"{tmp_path}/rank?.json", *mesh, "--step", "6", "--replica", "slowest", "--json").stdout
    )
    (step,) = slow["steps"]
    assert (step["step"], step["of_ranks"], step["makespan_ns"]) == ("ProfilerStep#6", [2, 3], 511)
    assert "the steps are ProfilerStep#5" in refusal("read", tmp_path, *mesh, "--step", "9")
    assert "no replica '2'" in refusal("read", tmp_path, *mesh, "--replica", "2")
    assert "must name each dimension once, and one of them pp" in refusal("read", tmp_path, "--mesh", "dp=4")
    said = refusal("read", tmp_path, *patterns, "--mesh", "dp=4,pp=1")
    assert "replica 1 computed stage 1 and not stage 0, which another did: these are no copies of one pipeline" in said
    assert "no regular expression" in refusal("read", tmp_path, "--label", "fwd (")
    assert "whether it is a forward or a backward" in refusal("read", tmp_path, "--label", "stage(?P<stage>.)")
    assert "no file is called as" in refusal("read", tmp_path / "none*.json")


@pytest.mark.parametrize("command", ["read", "fit", "diff"])
def test_help_prints_the_pattern_of_labels_whole(command: str) -> None:
    shown = pipetrace(command, "--help", COLUMNS="200").stdout
    assert r"'fwd mb(?P<microbatch>\d+) stage(?P<stage>\d+)'" in shown


def test_reduced_traces_keep_the_schedule_beside_them(tmp_path: Path) -> None:
    plan = library.build("1f1b", 2, 4)
    write_run(tmp_path, library.simulate(plan, library.parse_costs("F=1,B=2", p2p=100_000)))
    write_csv(plan, tmp_path / "schedule.csv")
    small = tmp_path / "small"
    ran = pipetrace("read", tmp_path, "--reduce", small)
    assert f"wrote {small / 'schedule.csv'}" in ran.stderr
    whole, reduced = (json.loads(pipetrace("diff", folder, "--json").stdout) for folder in (tmp_path, small))
    assert reduced["makespan_ns"] == whole["makespan_ns"]
    assert "the backward was measured whole: I and W are taken as half of it each" in reduced["costs_from"]
    # What is said and is not so is told.
    ran = pipetrace("read", small, "--schedule", "1f1b", "-p", 2, "-m", 8, COLUMNS="200")
    assert "the step is not whole: it lacks 16 actions of 2 ranks" in ran.stdout
    ran = pipetrace("read", small, "--schedule", "gpipe", "-p", 2, "-m", 2, COLUMNS="200")
    assert "8 of 16 actions that were recorded are none of gpipe with p = 2, m = 2" in ran.stdout
