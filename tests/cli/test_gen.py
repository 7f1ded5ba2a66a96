from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipetrace.schedules import build
from pipetrace.trace.torch_csv import read_csv
from tests.cli.command import misuse, pipetrace, refusal

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "makespan", "in_span"),
    [("zb-h1", 27, [3, 2, 1, 0]), ("1f1b", 33, [9, 6, 3, 0]), ("gpipe", 33, [9, 6, 3, 0])],
)
def test_figures_as_json(name: str, makespan: int, in_span: list[int]) -> None:
    ran = pipetrace("gen", name, "-p", 4, "-m", 8, "--json")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["schema"] == 1
    (figures,) = document["schedules"]
    assert figures["makespan_ns"] == makespan * MS
    assert figures["in_span_idle_ns"] == [idle * MS for idle in in_span]
    assert figures["global_idle_ns"] == [(makespan - 24) * MS] * 4
    assert figures["bubble_fraction"] == pytest.approx((makespan - 24) / makespan)
    assert (figures["schedule"], figures["ranks"], figures["microbatches"], figures["stages"]) == (name, 4, 8, 4)
    assert set(figures["peak_in_flight"]) == {"release_at_input_grad", "release_at_weight_grad"}


def test_four_ranks_and_eight_microbatches_unless_told() -> None:
    assert pipetrace("gen", "zb-h1", "--json").stdout == pipetrace("gen", "zb-h1", "-p", 4, "-m", 8, "--json").stdout


def test_costs_change_the_figures() -> None:
    ran = pipetrace("gen", "1f1b", "-p", 2, "-m", 4, "--costs", "F=10,I=12,W=8", "--p2p", "1", "--unit", "us", "--json")
    assert json.loads(ran.stdout)["schedules"][0]["makespan_ns"] == 154_000


def test_costs_file(tmp_path: Path) -> None:
    (tmp_path / "costs.toml").write_text('unit = "us"\ndefault = { F = 10, I = 12, W = 8 }\np2p = 1\n')
    ran = pipetrace("gen", "1f1b", "-p", 2, "-m", 4, "--costs-file", "costs.toml", "--json", cwd=tmp_path)
    assert json.loads(ran.stdout)["schedules"][0]["makespan_ns"] == 154_000


def test_every_format_at_once(tmp_path: Path) -> None:
    names = ["x.json", "x.json.gz", "x.pftrace", "x.pftrace.gz", "x.html", "x.csv", "x.svg", "x.PNG"]
    ran = pipetrace("gen", "zb-h1", *(word for name in names for word in ("-o", name)), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.splitlines() == [f"wrote {name}" for name in names]
    start = {name: (tmp_path / name).read_bytes()[:400] for name in names}
    assert start["x.json"].lstrip().startswith(b"{")
    assert start["x.json.gz"].startswith(b"\x1f\x8b")
    assert start["x.pftrace"].startswith(b"\n")
    assert start["x.pftrace.gz"].startswith(b"\x1f\x8b")
    assert b"<html" in start["x.html"].lower()
    assert b"<svg" in start["x.svg"]
    assert start["x.PNG"].startswith(b"\x89PNG")
    assert read_csv(tmp_path / "x.csv").schedule.same_order(build("zb-h1", 4, 8))


def test_a_csv_in_place_of_a_name(tmp_path: Path) -> None:
    assert pipetrace("gen", "zb-h1", "-o", "x.csv", cwd=tmp_path).returncode == 0
    ran = pipetrace("gen", "--from", "x.csv", "--json", cwd=tmp_path)
    assert json.loads(ran.stdout)["schedules"][0]["makespan_ns"] == 27 * MS
    assert "-m 9 was given, but x.csv has 8" in refusal("gen", "--from", "x.csv", "-m", 9, "--json", cwd=tmp_path)


def test_without_a_file_the_figures_are_printed() -> None:
    ran = pipetrace("gen", "zb-h1")
    assert ran.returncode == 0
    assert "27" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert "-o FILE" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["zbh1"], "unknown schedule 'zbh1' (did you mean zb-h1"),
        (["zb-h1", "-m", "0"], "zb-h1 with 0 microbatches (give at least 1"),
        (["zb-h1", "-p", "1"], "zb-h1 needs at least 2 ranks, not 1"),
        (["1f1b", "-p", "0"], "1f1b on 0 ranks"),
        (["1f1b", "-p", "70000"], "70000 ranks"),
        (["1f1b", "-m", "2000000"], "2000000 microbatches"),
        (["zb-h1", "-p", "99999999999999999999", "-m", "1"], "99999999999999999999 ranks (give at most 65535"),
        (["gpipe", "-p", "65536", "-m", "1048574"], "65536 ranks"),
        (["1f1b", "--costs", "F=x"], "'x' is no time"),
        (["1f1b", "--costs", "F=-1"], "a time of -1 ms is negative"),
        (["1f1b", "--p2p", "-1"], "a time of -1 ms is negative"),
        (["1f1b", "--unit", "h"], "unknown unit 'h'"),
        (["1f1b", "-o", "x.pdf"], "cannot tell the format of x.pdf"),
        (["1f1b", "-o", "no/such/x.json"], "no/such/x.json"),
        (["1f1b", "-o", "no/such/x.html"], "no/such/x.html"),
        (["1f1b", "-o", "no/such/x.csv"], "no/such/x.csv"),
        (["1f1b", "-o", "no/such/x.svg"], "no/such/x.svg"),
        (["--from", "nowhere.csv"], "nowhere.csv"),
        (["--from", "missing.csv"], "the backward of stage 1, microbatch 0 is missing"),
        (["1f1b", "--costs-file", "nowhere.toml"], "nowhere.toml"),
        (["1f1b", "--costs-file", "missing.csv"], "missing.csv is no TOML"),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "missing.csv").write_text("0F0,0B0\n1F0\n")
    assert words in refusal("gen", *arguments, cwd=tmp_path)


def test_nothing_is_written_where_one_of_several_formats_is_unknown(tmp_path: Path) -> None:
    refusal("gen", "1f1b", "-o", "x.json", "-o", "x.pdf", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "NAME"),
        (["1f1b", "--from", "x.csv"], "both name a schedule"),
        (["1f1b", "-p", "four"], "integer"),
        (["1f1b", "--costs", "F=1", "--costs-file", "x.toml"], "stands alone"),
        (["1f1b", "--nonsense"], "--nonsense"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, tmp_path: Path) -> None:
    # Typer draws a box and breaks lines in it.
    said = re.sub(r"[\s│]+", " ", misuse("gen", *arguments, cwd=tmp_path))
    assert words in said


def test_a_csv_that_torch_does_not_read_is_noted(tmp_path: Path) -> None:
    ran = pipetrace("gen", "dualpipe", "-o", "x.csv", cwd=tmp_path)
    assert ran.returncode == 0
    assert "note: x.csv is for pipetrace only: torch has no schedules of 2 pipes" in ran.stderr
    assert "note" not in pipetrace("gen", "zbv", "-o", "x.csv", cwd=tmp_path).stderr
