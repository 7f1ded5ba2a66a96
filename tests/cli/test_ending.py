"""How the command line ends when it cannot go on: one line, and an exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipetrace.cli.ending import exit_code
from tests.cli.command import misuse, pipetrace, refusal

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["show", "1f1b"],
        ["gen", "zb-h1", "--json"],
        ["compare", "1f1b", "zb-h1"],
        ["--help"],
        ["gen", "--help"],
        ["--version"],
    ],
)
def test_an_output_that_is_full(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "pipetrace", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: the output cannot be written: No space left on device")


def closed(which: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What a shell starts with some of its streams closed, e.g. `>&-`."""
    script = f'exec "$@" {which}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "pipetrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments", [["gen", "zb-h1", "--json"], ["show", "1f1b"], ["list"], ["gen", "--help"], ["--version"]]
)
def test_an_output_that_is_closed(arguments: list[str]) -> None:
    ran = closed(">&-", *arguments)
    assert ran.returncode == 1
    assert ran.stderr == ("error: the output cannot be written: it is closed (send it to a file, or to /dev/null)\n")


def test_what_goes_to_a_file_needs_none_of_the_standard_streams(tmp_path: Path) -> None:
    ran = closed("<&- >&- 2>&-", "gen", "1f1b", "-p", 2, "-m", 2, "-o", tmp_path / "x.csv")
    assert ran.returncode == 0
    assert (tmp_path / "x.csv").read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert closed("2>&-", "gen", "nope").returncode == 1


def test_a_stderr_that_is_full_leaves_the_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([sys.executable, "-m", "pipetrace", "gen", "nope"], stderr=full, check=False)
    assert ran.returncode == 1


@pytest.mark.parametrize("module", ["typer", "rich.console"])
def test_ctrl_c_while_it_loads(module: str, tmp_path: Path) -> None:
    # A module that Ctrl-C comes in the middle of.
    path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(exist_ok=True)
    if path.parent != tmp_path:
        (path.parent / "__init__.py").write_text("")
    path.write_text("raise KeyboardInterrupt\n")
    ran = pipetrace("show", "1f1b", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_in_a_command(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def build(p, m):\n    raise KeyboardInterrupt\n")
    ran = pipetrace("gen", "--from", "own.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("ranks_recorded", [False, True])
def test_ctrl_c_in_a_run_says_what_is_kept(ranks_recorded: bool, tmp_path: Path) -> None:
    # A step takes 1.2 s: after the first there is something to keep.
    command = [sys.executable, "-u", "-m", "pipetrace", "run", "1f1b", "-p", "2", "-m", "4", "--costs"]
    command += ["F=100,I=100,W=100", "--warmup", "0", "--steps", "50", "-o", "RUN"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    awaited = "step 1 of 50 done" if ranks_recorded else "starting"
    said = ""
    while awaited not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    last = rest.splitlines()[-1]
    assert last.startswith("interrupted")
    kept = len(list((tmp_path / "RUN").glob("rank*_trace.json.gz")))
    assert last == (
        "interrupted" if not kept else f"interrupted; the traces of {kept} ranks up to there are kept in RUN"
    )
    assert "Traceback" not in said + rest


def test_too_little_memory(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise MemoryError

    assert exit_code(run) == 1
    assert capsys.readouterr().err == "error: there is not enough memory for this (give smaller sizes)\n"


def test_a_bug_stays_a_bug() -> None:
    def run() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_code(run)


def usage(*arguments: object) -> str:
    """What wrong usage says, without the box that typer draws."""
    return re.sub(r"[\s│]+", " ", misuse(*arguments))


def test_options_of_a_run_that_would_have_no_effect() -> None:
    to = ("-o", "RUN")
    said = usage("run", "zb-h1", "--workload", "transformer", "--costs", "F=2", "--message-bytes", 9, *to)
    assert "--costs and --message-bytes are for --workload sleep, not transformer" in said
    assert "--costs-file is for" in usage("run", "zb-h1", "--workload", "transformer", "--costs-file", "x", *to)
    said = usage("run", "zb-h1", "--hidden", 64, "--dtype", "float64", *to)
    assert "--dtype and --hidden are for --workload transformer and --workload moe, not sleep" in said


def test_costs_that_shape_the_order_are_for_any_workload(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ("v-half", "--workload", "transformer", "--costs", "F=2", "-o", tmp_path / "file")
    assert "file" in refusal("run", *arguments)


def test_a_unit_beside_a_costs_file(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text("default = { F = 2 }\n")
    file = tmp_path / "costs.toml"
    assert "a costs file says its own" in usage("gen", "1f1b", "--costs-file", file, "--unit", "us")
    ran = pipetrace("gen", "1f1b", "--costs-file", file, "--unit", "us", "--p2p", 3, "--json")
    assert '"p2p": 3000' in ran.stdout


def test_more_ranks_than_a_machine_can_start(tmp_path: Path) -> None:
    said = refusal("run", "1f1b", "-p", 60_000, "-m", 1, "-o", tmp_path / "RUN")
    assert "60000 ranks are a process each" in said
    assert not (tmp_path / "RUN").exists()


def test_costs_of_another_schedule_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text("stages.9 = { F = 2 }\n")
    said = refusal("run", "1f1b", "-p", 2, "--costs-file", tmp_path / "costs.toml", "-o", tmp_path / "RUN")
    assert "the costs name stage 9, but 1f1b has 2 stages" in said
    assert not (tmp_path / "RUN").exists()


# Once written a file moves onto its place: here it never does, so that something is half written until the signal.
SLOW = """
import pathlib, sys, time
pathlib.Path.replace = lambda path, target: time.sleep(1000)
sys.argv = sys.argv[1:]
from pipetrace.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_half_written(number: int, tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    target.write_text("as it was")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "pipetrace", "gen", "1f1b", "-p", "32", "-m", "400", "-o", str(target)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob(".pipetrace-*.tmp")):
        assert process.poll() is None, "it ended before it could be met while writing"
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert target.read_text() == "as it was"
