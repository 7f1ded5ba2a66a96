from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipetrace.schedules import names
from tests.cli.command import misuse, pipetrace, refusal

MS = 1_000_000
MEMORY = '[memory]\nactivation_freed_at_weight = "1GiB"\nparameters = "4GiB"\n'


def json_of(*arguments: object, cwd: Path | None = None) -> Any:
    ran = pipetrace("compare", *arguments, "--json", cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_json() -> None:
    document = json_of("1f1b", "interleaved", "dualpipe", "-p", 4, "-m", 6)
    assert (document["schema"], document["costs_per"]) == (1, "rank")
    plain, interleaved = document["schedules"]
    assert (plain["makespan_ns"], plain["label"], plain["transfers"]) == (27 * MS, "1f1b", 36)
    assert interleaved["costs"]["default"]["F"] == MS // 2
    assert interleaved["peak_activations"]["release_at_weight_grad"] * 2 == max(
        interleaved["peak_in_flight"]["release_at_weight_grad"]
    )
    assert set(plain) >= {
        "schedule", "ranks", "microbatches", "stages", "makespan_ns", "global_idle_ns", "in_span_idle_ns",
        "bubble_fraction", "peak_in_flight", "in_span_fraction", "parameters",
    }  # fmt: skip
    (refused,) = document["not_built"]
    assert refused["label"] == "dualpipe"
    assert "-m 8 or more" in refused["reason"]


def test_all_schedules_where_none_is_named() -> None:
    document = json_of("-p", 4, "-m", 8)
    assert [entry["label"] for entry in document["schedules"] + document["not_built"]] == names()


def test_costs_per_chunk() -> None:
    (entry,) = json_of("interleaved", "-p", 4, "-m", 8, "--costs-per", "chunk")["schedules"]
    assert entry["makespan_ns"] == 57 * MS


def test_sweep() -> None:
    document = json_of("1f1b", "interleaved", "-p", 4, "-m", 8, "--sweep", "v=2,3")
    assert [(entry["label"], entry["swept"], entry["stages"]) for entry in document["schedules"]] == [
        ("1f1b", {"v": 2}, 4), ("interleaved", {"v": 2}, 8), ("1f1b", {"v": 3}, 4), ("interleaved", {"v": 3}, 12),
    ]  # fmt: skip


@pytest.mark.parametrize("sweep", [(), ("--sweep", "m=8,16,32")])
@pytest.mark.parametrize("memory", [False, True])
def test_it_fits_the_terminal(sweep: tuple[str, ...], memory: bool, tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text(MEMORY)
    given = ("--costs-file", "costs.toml", "--memory", "40GiB") if memory else ()
    ran = pipetrace("compare", "-p", 8, *(sweep or ("-m", 8)), *given, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert "not built: it needs an even number, at least two a rank" in ran.stdout
    for words in ("global idle = ", "in-span idle = ", "freed at I", "plain pipeline"):
        assert words in " ".join(ran.stdout.split())
    assert ("fit 40.0 GiB" in ran.stdout) == memory
    assert "\x1b" not in ran.stdout


def test_a_narrow_terminal_has_tables_below_each_other() -> None:
    ran = pipetrace("compare", "1f1b", "zbv", "chimera", "--sweep", "m=7,8", COLUMNS="40")
    lines = ran.stdout.splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split() for line in lines if line.startswith("zbv ")] == [
        ["zbv", "22.5", "6.7", "%", "0.0", "%", "4"],
        ["zbv", "25.5", "5.9", "%", "0.0", "%", "4"],
        ["zbv", "4", "1", "84"],
        ["zbv", "4", "1", "96"],
    ]
    assert ran.stdout.count("not built") == 1


OWN = """
from pipetrace import Placement, RankOrder, Schedule

def empty(ranks, microbatches):
    return Schedule.from_orders("empty", Placement(ranks, ((0,),)), microbatches, [RankOrder()] * ranks)

def stuck(ranks, microbatches):
    orders = []
    for rank in range(ranks):
        order = RankOrder()
        for i in range(microbatches):
            order.B(rank, i)
            order.F(rank, i)
        orders.append(order)
    return Schedule.from_orders("stuck", Placement.loop(ranks), microbatches, orders)
"""


def test_what_is_wrong_with_a_schedule_of_ones_own_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    ran = pipetrace("compare", "--from", "own.py:empty", "--from", "own.py:stuck", "1f1b", cwd=tmp_path)
    assert ran.returncode == 0
    told = " ".join(ran.stdout.split())
    assert "not built: own.py:5: rank 1 holds no stage" in told
    assert "stuck own.py: deadlock: rank 0 at 0B0 waits for 0F0" in told
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_a_long_name_does_not_break_the_table(tmp_path: Path) -> None:
    name = "a" * 70
    (tmp_path / f"{name}.csv").write_text("0F0,,,0B0\n,1F0,1B0,\n")
    ran = pipetrace("compare", "1f1b", "--from", f"{name}.csv", "-p", 2, "-m", 1, cwd=tmp_path)
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert "aaa…" in ran.stdout


def test_memory_in_json(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text(MEMORY)
    document = json_of(
        "1f1b", "gpipe", "-p", 4, "-m", 16, "--costs-file", "costs.toml", "--memory", "10GiB", cwd=tmp_path
    )
    assert [(entry["memory_bytes"] / 2**30, entry["fits"]) for entry in document["schedules"]] == [
        (8, True),
        (20, False),
    ]
    assert document["advice"] == ["1 of 2 fit 10.0 GiB; 1f1b (8.0 GiB) is the fastest of them."]


def test_a_page(tmp_path: Path) -> None:
    ran = pipetrace("compare", "1f1b", "zbv", "-p", 4, "-m", 8, "-o", "x.html", cwd=tmp_path)
    assert ran.stderr.splitlines() == ["wrote x.html"]
    assert "2 schedules of the same model" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_refusals(tmp_path: Path) -> None:
    assert "unknown schedule 'zbh1' (did you mean zb-h1" in refusal("compare", "1f1b", "zbh1")
    assert "none can be built: dualpipe on 4 ranks" in refusal("compare", "dualpipe", "-m", 4)
    assert "cannot sweep 'k=3'" in refusal("compare", "1f1b", "--sweep", "k=3")
    assert "'40 apples' is no size" in refusal("compare", "1f1b", "--memory", "40 apples")
    assert "[memory]" in misuse("compare", "1f1b", "--memory", "40GiB")
    assert "--costs-per" in misuse("compare", "1f1b", "--costs-per", "layer")
    assert "cannot tell the format of x.json" in refusal("compare", "1f1b", "-o", "x.json")
    (tmp_path / "costs.toml").write_text("[memory]\nparamters = 3\n")
    assert "unknown entry 'paramters' in memory" in refusal("compare", "--costs-file", "costs.toml", cwd=tmp_path)
    assert "no/such/x.html" in pipetrace("compare", "1f1b", "-o", "no/such/x.html", cwd=tmp_path).stderr


def test_times_are_in_one_unit() -> None:
    lines = pipetrace("compare", "1f1b", "-p", 8, "-m", 32, "--costs", "F=100,I=100,W=100", "--unit", "us").stdout
    assert lines.startswith("p = 8, m = 32; F = 0.1, I = 0.1, W = 0.1 ms on a rank")
    assert "makespan" in lines
    assert "µs" not in lines
    lines = pipetrace("compare", "1f1b", "-p", 8, "-m", 32, "--costs", "F=10.5,I=10,W=10", "--unit", "us").stdout
    assert "F = 10.5, I = 10, W = 10 µs" in lines
    assert "1,189.5" in lines


@pytest.mark.parametrize(
    ("given", "sweep", "flag"),
    [
        (("--p2p", 1), "p2p=0,1", "--p2p"),
        (("-m", 8), "m=8,16", "-m"),
        (("-v", 2), "v=2,4", "-v"),
        (("--wait", "inline"), "wait=inline,prefetch", "--wait"),
        (("--ranks-per-node", 4), "ranks-per-node=2", "--ranks-per-node"),
    ],
)
def test_what_is_swept_is_not_given_too(given: tuple[object, ...], sweep: str, flag: str) -> None:
    assert f"{flag} and --sweep {sweep.partition('=')[0]}=" in misuse(
        "compare", "interleaved", *given, "--sweep", sweep
    )


def test_a_value_given_twice_is_one_block() -> None:
    assert len(json_of("1f1b", "--sweep", "m=8, 8,16")["schedules"]) == 2


@pytest.mark.parametrize("size", ["40", "40.5", "1048575"])
def test_memory_wants_a_unit(size: str, tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text(MEMORY)
    given = ("compare", "1f1b", "--costs-file", "costs.toml", "--memory")
    assert f"give a unit: --memory {size}GiB" in refusal(*given, size, cwd=tmp_path)
    assert pipetrace(*given, str(40 << 30), cwd=tmp_path).returncode == 0
