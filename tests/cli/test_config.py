"""--config FILE.toml, for every command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.cli.command import misuse, pipetrace, refusal

MS = 1_000_000


@pytest.fixture
def configured(tmp_path: Path) -> Any:
    def write(**table: Any) -> Path:
        (tmp_path / "c.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
        return tmp_path

    return write


def json_of(*arguments: object, cwd: Path) -> Any:
    ran = pipetrace(*arguments, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("command", ["gen", "show"])
def test_options_and_the_name(command: str, configured: Any) -> None:
    folder = configured(name="interleaved", ranks=2, microbatches=4, chunks=3, costs="F=1,I=2,W=1", json=True)
    (figures,) = json_of(command, "--config", "c.toml", cwd=folder)["schedules"]
    assert (figures["schedule"], figures["ranks"], figures["stages"]) == ("interleaved", 2, 6)
    assert figures["costs"]["default"]["I"] == 2 * MS


def test_what_the_command_line_says_wins(configured: Any) -> None:
    folder = configured(name="zb-h1", ranks=2, p2p="1", json=True)
    (figures,) = json_of("gen", "1f1b", "--config", "c.toml", "-p", 3, "--p2p", 0, cwd=folder)["schedules"]
    assert (figures["schedule"], figures["ranks"], figures["makespan_ns"]) == ("1f1b", 3, 30 * MS)


def test_a_rival_on_the_command_line_wins_too(configured: Any) -> None:
    folder = configured(name="zb-h1", costs="F=1,I=1,W=1", json=True)
    (folder / "x.csv").write_text("0F0,0B0\n")
    (folder / "costs.toml").write_text("default = { F = 5 }\n")
    (figures,) = json_of("gen", "--from", "x.csv", "--config", "c.toml", cwd=folder)["schedules"]
    assert figures["stages"] == 1
    (figures,) = json_of("gen", "--costs-file", "costs.toml", "--config", "c.toml", cwd=folder)["schedules"]
    assert figures["costs"]["default"]["F"] == 5 * MS


def test_a_table_of_a_command_is_for_that_one(configured: Any) -> None:
    folder = configured(ranks=2, json=True, show={"ranks": 3, "name": "1f1b"}, gen={"name": "gpipe"})
    assert json_of("show", "--config", "c.toml", cwd=folder)["schedules"][0]["ranks"] == 3
    assert json_of("gen", "--config", "c.toml", cwd=folder)["schedules"][0]["ranks"] == 2


def test_a_key_of_another_command_is_no_error(configured: Any) -> None:
    folder = configured(steps=3, sweep="m=8,16", name="1f1b", json=True)
    assert len(json_of("gen", "--config", "c.toml", cwd=folder)["schedules"]) == 1


def test_lists_and_underscores(configured: Any) -> None:
    folder = configured(name="1f1b", out=["a.json", "b.csv"], ranks_per_node=2, p2p_across=0.5)
    assert pipetrace("gen", "--config", "c.toml", cwd=folder).returncode == 0
    assert (folder / "a.json").is_file()
    assert (folder / "b.csv").is_file()


def test_compare(configured: Any) -> None:
    folder = configured(compare={"names": ["1f1b", "zb-h1"], "sweep": "m=4,8", "costs-per": "chunk"}, json=True)
    assert len(json_of("compare", "--config", "c.toml", cwd=folder)["schedules"]) == 4
    folder = configured(names=["1f1b", "zb-h1"], json=True)
    assert len(json_of("compare", "zbv", "--config", "c.toml", cwd=folder)["schedules"]) == 1


def test_run_read_and_diff(configured: Any) -> None:
    folder = configured(
        ranks=2, microbatches=2, json=True,
        run={"name": "1f1b", "out": "RUN", "steps": 1, "warmup": 0}, read={"traces": ["RUN"]},
        diff={"traces": ["RUN"], "out": ["x.json"], "schedule": "1f1b"},
    )  # fmt: skip
    assert pipetrace("run", "--config", "c.toml", cwd=folder).returncode == 0
    assert len(json_of("read", "--config", "c.toml", cwd=folder)["steps"]) == 1
    assert len(json_of("diff", "--config", "c.toml", cwd=folder)["actions"]) == 8
    assert (folder / "x.json").is_file()


def test_list_and_open(configured: Any) -> None:
    folder = configured(json=True, open={"file": "x.json", "no-browser": True, "port": 1, "timeout": 0.1})
    assert json_of("list", "--config", "c.toml", cwd=folder)["schema"] == 1
    assert "x.json" in refusal("open", "--config", "c.toml", cwd=folder)


@pytest.mark.parametrize("command", ["list", "gen", "show", "compare", "run", "read", "diff", "open"])
def test_an_unknown_key_is_one_line_for_every_command(command: str, configured: Any) -> None:
    folder = configured(microbatch=3)
    assert "c.toml: unknown option 'microbatch' (did you mean microbatches?)" in refusal(
        command, "--config", "c.toml", cwd=folder
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ranks = 'x'", "c.toml: ranks = 'x': "),
        ("ranks = 8.5", "c.toml: ranks = 8.5: "),
        ("ranks = true", "c.toml: ranks is True (give a number or text)"),
        ("ranks = [1]", "c.toml: ranks is [1]"),
        ("out = [[1]]", "or a list of them"),
        ("json = 1", "write json = true"),
        ("wait = 'inlin'", "c.toml: wait = 'inlin': "),
        ("costs = 'F=x'", "'x' is no time"),
        ("[shwo]\nranks = 1", "c.toml: unknown command [shwo] (did you mean show?)"),
        ("[gen]\nwidth = 100", "c.toml: unknown option 'width' in [gen]"),
        ("config = 'd.toml'", "unknown option 'config'"),
        ("help = true", "unknown option 'help'"),
        ("gen = 3", "c.toml: gen is 3, no table (write [gen]"),
        ("[[gen]]\nranks = 2", "no table (write [gen]"),
        ("ranks = 0x" + "f" * 5000, "c.toml: ranks is an integer of 20000 bits"),
        ("ranks = " + "9" * 5000, "c.toml is no TOML: a number has more digits than can be read"),
        ("ranks = " + "[" * 5000, "c.toml is no TOML: it is nested too deeply"),
        ("ranks = ['" + "x" * 5000 + "']", "xxx..."),
        ("ranks = '" + "x" * 5000 + "'", "xxx..."),
        ("ranks = 1979-05-27", "c.toml: ranks = datetime.date"),
        ("p2p = nan", "'nan' is no time"),
        ("spin = nan", "by nan"),
        ("\n".join(f"k{i} = {i}" for i in range(10_000)), "unknown option 'k0'"),
        ("ranks", "c.toml is no TOML"),
        ("\x00", "c.toml is no TOML"),
    ],
)
def test_bad_files(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    said = refusal("gen", "1f1b", "--config", "c.toml", cwd=tmp_path)
    assert words in said
    assert len(said) < 1000


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("\ufeffranks = 2\njson = true\n", encoding="utf-8")
    assert json_of("gen", "1f1b", "--config", "c.toml", cwd=tmp_path)["schedules"][0]["ranks"] == 2
    (tmp_path / "costs.toml").write_text("\ufeffp2p = 1\n", encoding="utf-8")
    figures = json_of("gen", "1f1b", "--costs-file", "costs.toml", "--json", cwd=tmp_path)["schedules"][0]
    assert figures["costs"]["p2p"] == MS


def test_no_file(tmp_path: Path) -> None:
    assert "nowhere.toml: No such file" in refusal("gen", "1f1b", "--config", "nowhere.toml", cwd=tmp_path)
    assert "--config" in misuse("gen", "1f1b", "--config")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("p = 4", "-p is called ranks here"),
        ("m = 4", "-m is called microbatches here"),
        ("[gen]\nv = 4", "-v is called chunks here"),
        ("costs = { F = 1, I = 2 }", 'write it as on the command line: costs = "F=1,I=2"'),
        ("option = { lag = 3 }", 'write it as on the command line: option = ["lag=3"]'),
        ("ranks = { a = 3 }", "give a value: ranks ="),
        ("xyzzyqq = 3", "`pipetrace COMMAND --help` names them all"),
    ],
)
def test_what_is_written_otherwise_in_a_file_is_told(text: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    assert hint in refusal("gen", "1f1b", "--config", "c.toml", cwd=tmp_path)


def test_an_option_that_stands_twice(configured: Any) -> None:
    folder = configured(**{"name": "1f1b", "ranks-per-node": 2, "p2p_across": "1", "p2p-across": "2"})
    assert "c.toml: p2p_across and p2p-across are one option" in refusal("gen", "--config", "c.toml", cwd=folder)
