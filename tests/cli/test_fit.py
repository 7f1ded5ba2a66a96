from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipetrace as library
from tests.cli.command import pipetrace, refusal
from tests.trace.recorded import write_run

TRACES = Path(__file__).parent.parent / "data" / "traces"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    costs = library.parse_costs("F=1,I=0.5,W=1.5", p2p=250_000)
    write_run(tmp_path, library.simulate(library.build("zb-h1", 3, 6), costs), steps=3)
    return tmp_path


def test_simulating_what_was_fitted_gives_the_run_back(run: Path, tmp_path: Path) -> None:
    ran = pipetrace("fit", run, "-o", "costs.toml", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "0.25 ms from one rank to another" in ran.stdout
    assert "the median of those awaited from before their start, or the fastest" in " ".join(ran.stdout.split())
    assert "0 I" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert "# Measured on" in (tmp_path / "costs.toml").read_text()
    (read,) = json.loads(pipetrace("read", run, "--step", "1", "--json").stdout)["steps"]
    simulated = pipetrace("gen", "zb-h1", "-p", 3, "-m", 6, "--costs-file", "costs.toml", "--json", cwd=tmp_path)
    assert json.loads(simulated.stdout)["schedules"][0]["makespan_ns"] == read["makespan_ns"]


def test_json(run: Path) -> None:
    document = json.loads(pipetrace("fit", run, "--json").stdout)
    assert document["schema"] == 1
    first = document["actions"][0]
    assert (first["stage"], first["kind"], first["count"]) == (0, "F", 18)
    assert first["low_ns"] == first["median_ns"] == first["high_ns"] == 1_000_000
    assert document["transfers"]["count"] == 3 * 6 * 2 * 2
    assert document["costs"]["p2p"] == 250_000


def test_of_what_nothing_labels(tmp_path: Path) -> None:
    ran = pipetrace("fit", TRACES / "synthetic_gpu_1f1b_pp4_mb8", "--schedule", "1f1b", "-o", tmp_path / "c.toml")
    assert ran.returncode == 0, ran.stderr
    assert "298" in ran.stdout
    note = "note: the backward was measured whole: I and W are taken as half of it each"
    assert note in " ".join(ran.stdout.split())
    assert note.removeprefix("note: ") in (tmp_path / "c.toml").read_text()
    costs = ("--costs-file", tmp_path / "c.toml")
    compared = pipetrace("compare", "1f1b", "zb-h1", "-p", 4, "-m", 8, *costs)
    assert (
        "F = 0.298, I = 0.299, W = 0.299, B = 0.598 ms on a rank of the plain pipeline; transfers 0.201 ms"
        in " ".join(compared.stdout.split())
    )
    (zb,) = json.loads(pipetrace("gen", "zb-h1", "-p", 4, "-m", 8, *costs, "--json").stdout)["schedules"]
    assert zb["makespan_ns"] >= 8 * (298_000 + 598_000)
    assert "no action was measured" in refusal("fit", TRACES / "1f1b_pp2_mb4_mlp")


def test_reduced_traces_stand_for_the_traces(tmp_path: Path) -> None:
    folder = TRACES / "synthetic_gpu_1f1b_pp4_mb8"
    for rank in range(4):  # each on its own node
        ran = pipetrace("read", folder / f"rank{rank}.json.gz", "--schedule", "1f1b", "--reduce", tmp_path / "small")
        assert ran.returncode == 0, ran.stderr
        assert f"rank{rank}.steps.json.gz" in ran.stderr
    small, whole = (
        json.loads(pipetrace("fit", source, *more, "--json").stdout)
        for source, more in ((tmp_path / "small", []), (folder, ["--schedule", "1f1b"]))
    )
    assert small["actions"] == whole["actions"]
    assert small["costs"] == whole["costs"]
    ran = pipetrace("diff", tmp_path / "small" / "rank*.steps.json.gz", "--schedule", "1f1b")
    assert ran.returncode == 0, ran.stderr
