"""Schedules in parts of MoE layers, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import misuse, pipetrace, refusal

HALVES = "attn.W=0.5,mlp.W=0.5"


def output(*arguments: object) -> str:
    ran = pipetrace(*arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def gen(*arguments: str) -> dict[str, object]:
    summary: dict[str, object] = json.loads(output("gen", *arguments, "--json"))["schedules"][0]
    return summary


def test_both_lanes_reach_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    output("gen", "dualpipev", "-p", "2", "-m", "4", "--layers", "2", "--moe-order", "aligned", "-o", str(file))
    events = json.loads(file.read_text())["traceEvents"]
    lanes = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"rank 0 all-to-all", "rank 1 all-to-all"} <= lanes
    assert {event["cat"] for event in events if event["ph"] == "X"} >= {"compute", "all-to-all"}


def test_the_grains_agree_and_the_difference_is_told() -> None:
    sizes = ("dualpipev", "-p", "2", "-m", "6", "--parts", HALVES)
    parts, stages = (gen(*sizes, "--moe-order", "megatron", "--grain", grain) for grain in ("part", "stage"))
    assert parts["makespan_ns"] == stages["makespan_ns"]
    dualpipe = gen(*sizes)  # the default
    moe = dualpipe["moe"]
    assert isinstance(moe, dict)
    assert (moe["order"], moe["layers"]) == ("dualpipe", 1)
    assert moe["whole_stages_makespan_ns"] == gen(*sizes, "--grain", "stage")["makespan_ns"]
    inline = gen(*sizes, "--moe-order", "aligned", "--p2p", "1", "--wait", "inline")
    assert isinstance(inline["moe"], dict)
    assert inline["moe"]["whole_stages_makespan_ns"] == inline["makespan_ns"]


def test_csv_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "parts.csv"
    given = ("--parts", HALVES, "-p", "2", "-m", "4")
    output("gen", "dualpipev", *given, "-o", str(file))
    again = gen("--from", str(file), "--parts", HALVES)
    assert again["makespan_ns"] == gen("dualpipev", *given)["makespan_ns"]
    assert "is in parts of layers already" in refusal("gen", "--from", file, "--layers", 2)
    for command in (("gen",), ("run", "-o", tmp_path / "RUN")):
        assert "--costs is for whole stages" in misuse(*command, "--from", file, "--costs", "F=2")


def test_what_sleeps_is_in_parts_wherever_its_ideal_is(tmp_path: Path) -> None:
    """A run of whole stages would take F = I = W = 1 ms in place of what was asked for."""
    costs = tmp_path / "costs.toml"
    costs.write_text("[parts]\nattn = 5\n")
    for asked in (("--layers", 2), ("--costs-file", costs)):  # out of order only whole stages may run
        message = refusal("run", "1f1b", "-o", tmp_path / "RUN", "--wait", "dataflow", *asked)
        assert "1f1b is in parts of layers" in message


def test_costs_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "costs.toml"
    file.write_text(
        "[model]\nhidden = 1000\nffn = 500\nexperts = 10\ntop_k = 2\ntokens = 100\nsequence = 50\nep = 4\n"
        "tflops = 1\nbandwidth = 1\n"
    )
    moe = gen("moe-1f1b", "-p", "2", "-m", "4", "--costs-file", str(file))["moe"]
    assert isinstance(moe, dict)
    # Two of 300 µs each way, of a microbatch on each of two stages a rank.
    assert moe["all_to_all_ns"] == [4 * 2 * 4 * 300_000] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--moe-order serial --no-split", "does not split the backward"),
        ("--layers 1 --wait dataflow", "order on two lanes is fixed"),
        ("--layers 1 --comms", "lists its sends and receives"),
        ("--parts a2a.W=1", "a2a has no weights"),
    ],
)
def test_what_does_not_go_together(options: str, words: str) -> None:
    assert words in refusal("gen", "1f1b", *options.split())


def test_misuse() -> None:
    assert "--costs is for whole stages" in misuse("gen", "1f1b", "--costs", "F=2", "--layers", 2)
    assert "mlp=never" in misuse("gen", "1f1b", "--weights", "mlp=never")


def test_orders_side_by_side() -> None:
    text = output(
        "compare",
        *(f"dualpipev:moe-order={order}" for order in ("serial", "aligned", "dualpipe")),
        *("--layers", "2", "-p", "2", "-m", "8", "--parts", "mlp=2,a2a=1.5"),
    )
    rows = [line for line in text.splitlines() if line.startswith("dualpipev")]
    assert [row.split()[1] for row in rows] == ["serial", "aligned", "dualpipe"]
    assert rows[0].endswith("100.0 %")
    assert "Exposed a2a" in text
