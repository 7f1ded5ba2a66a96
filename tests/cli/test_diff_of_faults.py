"""Runs with a fault on purpose: the verdict's first sentence names it. And what `--fail-on` and `--before` do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipetrace.costs_io import parse_costs
from pipetrace.diff_run import diff_traces
from pipetrace.execute import RunConfig
from pipetrace.execute import run as execute
from pipetrace.execute.inject import parse_injections
from pipetrace.execute.launcher import Launcher
from pipetrace.report.verdict import verdict
from pipetrace.schedules import build
from tests.cli.command import pipetrace, refusal

TRACES = Path(__file__).parent.parent / "data" / "traces"


def run(folder: Path, *arguments: object) -> Path:
    ran = pipetrace("run", *arguments, "--costs", "F=10,I=10,W=10", "--steps", 3, "-o", folder)
    assert ran.returncode == 0, ran.stderr
    return folder


def diffed(*arguments: object) -> dict[str, Any]:
    ran = pipetrace("diff", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def holds_together(of: dict[str, Any]) -> None:
    fall = of["waterfall"]
    assert fall["base_ns"] + sum(bar["size_ns"] for bar in fall["bars"]) + fall["residual_ns"] == fall["measured_ns"]
    assert fall["measured_ns"] == of["makespan_ns"]["measured"]
    for rank in of["waiting"]["measured"]:
        idle = sum(ns for key, ns in rank.items() if key.endswith("_ns") and key != "busy_ns")
        assert rank["busy_ns"] + idle == fall["measured_ns"]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1F1B whose rank 1 takes four times as long: far above what other work does to processes that mostly sleep."""
    return run(tmp_path_factory.mktemp("runs") / "SLOW", "1f1b", "-p", 3, "-m", 4, "--inject", "rank1:compute*4")


def test_a_slow_rank_is_named_and_not_communication(slow: Path) -> None:
    of = diffed(slow)
    holds_together(of)
    assert of["faults"][0]["names"] == ["rank 1", "stage 1"]
    assert of["faults"][0]["kind"] == "compute"
    # A busy machine stretches what others compute as well.
    assert of["faults"][0]["amount"] > 2
    assert of["verdict"][0].startswith("Rank 1's compute takes ")
    assert max(of["waterfall"]["bars"], key=lambda bar: int(bar["size_ns"]))["name"] == "compute of rank 1"


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """Starts ranks of several runs, for one import of torch."""
    with Launcher() as of:
        yield of


FAULTS = {
    "rank2:compute*4": "Rank 2's compute takes ",
    "link1-2:+60ms": "Link 1→2 takes ",
    "rank0:gap+30ms": "Rank 0 pauses ",
}
"""Far above what other work on the machine does to processes that mostly sleep."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipev"])
def test_the_first_sentence_names_the_fault(name: str, fault: str, tmp_path: Path, launcher: Launcher) -> None:
    config = RunConfig(costs=parse_costs("F=5,I=5,W=5"), steps=1, warmup=0, inject=parse_injections([fault]))
    execute(build(name, 3, 6 if name == "dualpipev" else 4), config, tmp_path / "RUN", launcher=launcher)
    of = diff_traces([tmp_path / "RUN"])
    assert of.analysis.waterfall.residual == 0
    assert verdict(of.analysis)[0].startswith(FAULTS[fault])


def test_a_threshold_ends_with_its_own_code(slow: Path) -> None:
    crossed = pipetrace("diff", slow, "-o", slow / "x.html", "--fail-on", "makespan:+5%", "--fail-on", "missing:0")
    assert crossed.returncode == 3
    assert "over the limit: the makespan grows by " in crossed.stderr
    # Whether or not somebody reads on.
    command = f"{sys.executable} -m pipetrace diff {slow} --fail-on makespan:+5% | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=False).returncode == 3
    assert "missing" not in crossed.stderr.partition("over the limit")[2]
    assert pipetrace("diff", slow, "-o", slow / "x.html", "--fail-on", "makespan:+5000%").returncode == 0
    assert "--fail-on 'speed:1' is no threshold" in refusal("diff", slow, "--fail-on", "speed:1")


def test_before_and_after(slow: Path, tmp_path: Path) -> None:
    healthy = run(tmp_path / "RUN", "1f1b", "-p", 3, "-m", 4)
    of = diffed(slow, "--before", healthy)
    holds_together(of)
    assert of["faults"][0]["names"][0] == "rank 1"
    assert "than before" in of["verdict"][0] or "as long as before" in of["verdict"][0]
    back = diffed(healthy, "--before", slow, "-o", tmp_path / "x.html")
    assert back["faults"][0]["effect_ns"] < 0
    assert "before, " in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_what_ran_another_schedule_is_not_before(slow: Path) -> None:
    said = refusal("diff", slow, "--before", TRACES / "rt-zbh1_pp4_mb8_mlp")
    assert "rt-zbh1_pp4_mb8_mlp ran another schedule" in said


def test_waits_inside_torchs_labels_are_waits(tmp_path: Path) -> None:
    """torch's runtime waits for receives inside its compute labels: that is no compute."""
    of = diffed(TRACES / "zbv_pp2_mb4_mlp", "--schedule", "zbv", "-p", 2, "-m", 4)
    holds_together(of)
    assert (of["missing"], of["extra"], of["reordered"]) == ([], [], [])
    waited = {
        rank["rank"]: sum(rank[f"{cause}_ns"] for cause in ("input", "gradient", "transfer", "post"))
        for rank in of["waiting"]["measured"]
    }
    assert waited[0] > 10_000_000
    assert waited[1] > 2_000_000
    # With the waits left in, rank 0 would be busy for as long as it waits on top.
    busy = {rank["rank"]: rank["busy_ns"] for rank in of["waiting"]["measured"]}
    assert busy[0] < 36_000_000
    assert of["waterfall"]["residual_ns"] == 0


def test_a_rank_that_is_absent_is_not_idle(slow: Path, tmp_path: Path) -> None:
    for path in slow.glob("rank[02]_trace.json.gz"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    of = diffed(tmp_path, "--from", slow / "schedule.csv")
    holds_together(of)
    assert [rank["rank"] for rank in of["waiting"]["measured"]] == [0, 2]
    assert of["verdict"][0].startswith("Rank 1 was not recorded: what others waited for from it (rank ")
    assert not [fault for fault in of["faults"] if fault["kind"] in ("gap", "delayed") and fault["total_ns"] > 2e7]
    assert {rank["rank"]: rank["unrecorded_ns"] > 2e7 for rank in of["waiting"]["measured"]}[0]
    assert of["per_rank"][1]["busy_ns"]["measured"] is None
    whole = 2 * of["makespan_ns"]["measured"]
    idle = sum(rank["global_idle_ns"]["measured"] or 0 for rank in of["per_rank"])
    assert of["bubble_fraction"]["measured"] == pytest.approx(idle / whole)
