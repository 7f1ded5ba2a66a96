"""Options of schedules and of waiting, on every command that builds one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipetrace.schedules import build
from pipetrace.trace.torch_csv import read_csv
from tests.cli.command import misuse, pipetrace, refusal

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("interleaved", ["-v", 3], {"chunks": 3}),
        ("interleaved", ["--chunks", 3], {"chunks": 3}),
        ("interleaved", ["--group", 8], {"group": 8}),
        ("chimera", ["--pipes", 4], {"pipes": 4}),
        ("gpipe", ["--backward", "lifo"], {"backward": "lifo"}),
        ("looped-bfs", ["--option", "chunks=3"], {"chunks": 3}),
        ("gpipe", ["--option", "backward=lifo"], {"backward": "lifo"}),
    ],
)
def test_gen_passes_them_on(name: str, arguments: list[object], options: dict[str, object], tmp_path: Path) -> None:
    assert pipetrace("gen", name, "-p", 4, "-m", 8, *arguments, "-o", "x.csv", cwd=tmp_path).returncode == 0
    assert read_csv(tmp_path / "x.csv").schedule.same_order(build(name, 4, 8, **options))


def test_so_do_show_run_and_diff(tmp_path: Path) -> None:
    shown = json.loads(pipetrace("show", "interleaved", "-v", 3, "--json").stdout)["schedules"][0]
    assert (shown["stages"], shown["makespan_ns"]) == (12, 81 * MS)
    ran = pipetrace("run", "interleaved", "-p", 2, "-m", 2, "-v", 3, "--steps", 1, "-o", tmp_path / "RUN")
    assert ran.returncode == 0, ran.stderr
    assert read_csv(tmp_path / "RUN" / "schedule.csv").schedule.stages == 6
    traces, schedule = tmp_path / "RUN", ("--schedule", "interleaved", "-p", 2, "-m", 2, "-v", 3)
    ran = pipetrace("diff", traces, *schedule, "-o", tmp_path / "x.json")
    assert ran.returncode == 0, ran.stderr
    assert "--schedule" in misuse("diff", traces, "-v", 3)


def test_a_schedule_that_does_not_take_one_refuses() -> None:
    for command in ("gen", "show"):
        assert "1f1b takes no option 'chunks' (-v) (it is for interleaved," in refusal(command, "1f1b", "-v", 2)
    assert "none of 1f1b, zbv takes the option 'chunks'" in refusal("compare", "1f1b", "zbv", "-v", 2)


def test_an_option_that_is_none() -> None:
    assert "NAME=VALUE" in misuse("gen", "gpipe", "--option", "lifo")
    assert "no option 'depth'" in refusal("gen", "gpipe", "--option", "depth=3")
    assert "no option 'memory' (--memory-chunks)" in refusal("gen", "gpipe", "--memory-chunks", 3)


def test_width_of_show() -> None:
    narrow = pipetrace("show", "1f1b", "--width", 60).stdout.splitlines()
    wide = pipetrace("show", "1f1b", "--width", 140).stdout.splitlines()
    assert max(map(len, narrow)) <= 60
    assert 80 < max(map(len, wide)) <= 140
    misuse("show", "1f1b", "--width", 3)


def test_nodes_and_transfers_over_a_costs_file(tmp_path: Path) -> None:
    def makespan(*arguments: object) -> int:
        ran = pipetrace("gen", "1f1b", "-p", 4, "-m", 1, *arguments, "--json", cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        return int(json.loads(ran.stdout)["schedules"][0]["makespan_ns"])

    (tmp_path / "costs.toml").write_text("p2p = 1\n[memory]\nparameters = 1\n")
    # Three transfers there and three back; of each three, one goes from node to node.
    assert makespan("--ranks-per-node", 2, "--p2p-across", 0.5) == 13 * MS
    assert makespan("--costs-file", "costs.toml") == 18 * MS
    assert makespan("--costs-file", "costs.toml", "--p2p", 2) == 24 * MS
    assert makespan("--costs-file", "costs.toml", "--ranks-per-node", 2, "--p2p-across", 0.5) == 17 * MS
    assert "go together" in misuse("gen", "1f1b", "--ranks-per-node", 2)
    assert "0 ranks a node" in refusal("gen", "1f1b", "--ranks-per-node", 0, "--p2p-across", 1)


@pytest.mark.parametrize("command", ["gen", "show", "compare"])
def test_ways_of_waiting_are_checked(command: str) -> None:
    default = ("--wait", "prefetch", "--channel", "tagged", "--post", 0, "--spin", 0, "--json")
    assert pipetrace(command, "1f1b", *default).stdout == pipetrace(command, "1f1b", "--json").stdout
    assert "--wait dataflow" in misuse(command, "1f1b", "--no-reorder")
    assert "--wait" in misuse(command, "1f1b", "--wait", "never")
    assert "'x' is no time" in refusal(command, "1f1b", "--post", "x")
    assert "-1.0" in refusal(command, "1f1b", "--spin", -1)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["gen", "1f1b", "--costs", "F=5", "--costs", "I=1"], "'--costs': it is given twice"),
        (["compare", "1f1b", "--sweep", "m=8", "--sweep", "p=2"], "'--sweep': it is given twice"),
        (["show", "1f1b", "-p", "4", "--ranks", "5"], "it is given twice"),
        (["gen", "1f1b", "-p", "1_0"], "'1_0' is no number of plain digits"),
        (["gen", "1f1b", "--spin", "0.1_0"], "'0.1_0' is no number of plain digits"),
        (["gen", "interleaved", "--option", "chunks=3", "-v", "2"], "chunks is given twice"),
        (["gen", "interleaved", "--option", "group=4", "--option", "group=8"], "group is given twice"),
    ],
)
def test_nothing_is_dropped_silently(command: list[str], words: str) -> None:
    assert words in " ".join(misuse(*command).replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ["compare", "interleaved:v=2", "1f1b", "--sweep", "v=3,4"],
            "interleaved v=2 has its own chunks, which is swept",
        ),
        (["compare", "interleaved:v=2,v=3"], "gives chunks twice"),
        (["compare", "interleaved:chunks=4,v=2"], "gives chunks twice"),
        (["compare", "v-half:costs=3"], "costs of v-half is 3"),
        (["gen", "v-half", "--option", "costs=3"], "costs of v-half is 3"),
    ],
)
def test_nothing_is_overridden_silently(command: list[str], words: str) -> None:
    assert words in refusal(*command)


def test_what_may_stand_several_times(tmp_path: Path) -> None:
    files = [tmp_path / "x.json", tmp_path / "x.csv"]
    assert pipetrace("gen", "1f1b", *(word for file in files for word in ("-o", file))).returncode == 0
    assert all(file.is_file() for file in files)
    assert pipetrace("compare", "interleaved:v=2", "interleaved", "-v", 3).returncode == 0


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("across = { latency = 1 }", "ranks_per_node and across of the network go together"),
        ("ranks_per_node = 2", "ranks_per_node and across of the network go together"),
        ("links.0-99 = { latency = 1 }", "name the link 0-99, but 1f1b has 4 ranks"),
        ("links.2-2 = { latency = 1 }", "costs.toml: a link from rank 2 to 2"),
        ("message_bytes = 1_000_000_000_000_000\nbandwidth = 0.001", "costs.toml: a message of"),
    ],
)
def test_a_network_that_means_nothing(network: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text(f"[network]\n{network}\n")
    assert words in refusal("gen", "1f1b", "--costs-file", "costs.toml", cwd=tmp_path)


def test_sizes_of_a_stage_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "sizes.toml").write_text('[memory]\nparameters = "1GiB"\nstages.99 = { parameters = "2GiB" }\n')
    comparing = ["compare", "1f1b", "--costs-per", "chunk"]
    for command in (["gen", "1f1b"], ["show", "1f1b"], ["show", "1f1b", "--json"], comparing):
        said = refusal(*command, "--costs-file", "sizes.toml", cwd=tmp_path)
        assert "[memory] names stage 99" in said
        assert "has 4 stages" in said
