"""Schedules of users: from a Python file, and from installed plug-ins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipetrace.schedules import names
from tests.cli.command import misuse, pipetrace, refusal

SOURCE = '''
import ctypes
import os
import subprocess

from pipetrace.errors import PipetraceError
from pipetrace import Placement, RankOrder, Schedule
from pipetrace.schedules import ScheduleSpec

def build(ranks, microbatches, *, depth=1, chunks=1, costs=None):
    """All forwards, then all backwards."""
    if depth == 2:
        raise ValueError("too\\ndeep")
    if depth == 3:
        Placement.loop(0)
    if depth == 4:
        return 3
    if depth == 5:
        raise SystemExit
    if depth == 8:
        print("a word on the way")
    if depth == 9:
        raise BaseException("odd")
    if depth == 10:
        raise Unspeakable
    if depth == 11:
        raise ValueError("\\x1b[31m" + "x" * 5000)
    if depth == 12:
        return Schedule.from_orders("a\\n\\udcff", Placement.loop(1), 1, [RankOrder()])
    if depth == 13:
        raise Hinting
    if depth == 14:
        raise Leaving
    if depth == 15:
        raise Bare
    if depth == 16:
        Placement("loop", ranks, ())
    if depth == 6:
        assert costs.default.F == 7_000_000
    orders = []
    for rank in range(ranks):
        order = RankOrder()
        for i in range(microbatches):
            order.F(rank, i)
        for i in range(microbatches - (depth == 7)):
            order.B(rank, i)
        orders.append(order)
    return Schedule.from_orders("mine", Placement.loop(ranks), microbatches, orders)

class Unspeakable(Exception):
    def __str__(self):
        raise ValueError

class Hinting(Exception):
    hint = ("a", 5)

class Leaving(Exception):
    def __str__(self):
        raise SystemExit(0)

class Bare(PipetraceError):
    def __init__(self):
        self.message = 5

class Nameless:
    __str__ = Leaving.__str__

def changed(ranks, microbatches, *, column="code", value=None, at=0, cut=None, name="x"):
    """A schedule whose columns are not what they should be."""
    schedule = build(ranks, microbatches)
    array = getattr(schedule, column)
    if value is None:
        array = None if cut is None else array[:cut] if cut else array.astype(float)
    else:
        array = array.copy()
        array[at] = value
    object.__setattr__(schedule, column, array)
    return schedule

def nameless(ranks, microbatches):
    schedule = build(ranks, microbatches)
    object.__setattr__(schedule, "name", Nameless())
    return schedule

def noisy(ranks, microbatches):
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "a child"])
    ctypes.CDLL(None).puts(b"in C")
    return build(ranks, microbatches)

def stray(ranks, microbatches, *, kind="B", stage=0, microbatch=0):
    order = RankOrder()
    order.F(0, 0)
    getattr(order, kind)(stage, microbatch)
    orders = [RankOrder(), order, *[RankOrder()] * (ranks - 2)]
    return Schedule.from_orders("x", Placement.loop(ranks), microbatches, orders)

async def later(ranks, microbatches):
    return build(ranks, microbatches)

def fixed(ranks, microbatches):
    return build(2, 2)

def any_option(ranks, microbatches, **options):
    assert options == {"chunks": 3, "costs": options["costs"]}
    return build(ranks, microbatches)

def one(ranks):
    return None

nothing = 3
spec = ScheduleSpec("else", build, "loop", "any", "nobody", ("depth",))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(SOURCE)
    return tmp_path


def plugin(folder: Path, text: str) -> Any:
    """The environment in which a package with these entry points is installed."""
    info = folder / "own_package-1.2.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[pipetrace.schedules]\n{text}\n")
    root = Path(__file__).parent.parent.parent
    return {"PYTHONPATH": f"{folder}:{root}"}


def test_a_builder_of_a_file(folder: Path) -> None:
    for source in ("own.py:build", "own.py", folder / "own.py"):
        ran = pipetrace("gen", "--from", source, "-p", 3, "-m", 5, "--json", cwd=folder)
        assert ran.returncode == 0, ran.stderr
        (figures,) = json.loads(ran.stdout)["schedules"]
        assert (figures["schedule"], figures["ranks"], figures["microbatches"]) == ("mine", 3, 5)
    assert pipetrace("show", "--from", "own.py:any_option", "-v", 3, cwd=folder).returncode == 0
    assert pipetrace("gen", "--from", "own.py", "--option", "depth=6", "--costs", "F=7", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    [
        ("own.py", ["--option", "depth=2"], "own.py:13: ValueError: too deep"),
        ("own.py", ["--option", "depth=3"], "own.py:15: a placement needs at least one rank"),
        ("own.py", ["--option", "depth=4"], "own of own.py returned int, no Schedule"),
        ("own.py", ["--option", "depth=5"], "own.py:19: SystemExit"),
        ("own.py", ["--option", "depth=6"], "own.py:39: AssertionError"),
        ("own.py", ["--option", "depth=9"], "own.py:23: BaseException: odd"),
        ("own.py", ["--option", "depth=10"], "own.py:25: Unspeakable"),
        ("own.py", ["--option", "depth=11"], "own.py:27: ValueError: \\x1b[31mxxx"),
        ("own.py", ["--option", "depth=12"], "was asked for 4 ranks"),
        ("own.py", ["--option", "depth=13"], "own.py:31: Hinting"),
        ("own.py", ["--option", "depth=14"], "own.py:33: Leaving"),
        ("own.py", ["--option", "depth=15"], "own.py:35: 5"),
        ("own.py", ["--option", "depth=16"], "own.py:37: a placement of 'loop' ranks"),
        ("own.py:changed", [], "own.py: code of a schedule is None"),
        ("own.py:changed", ["--option", "cut=0"], "own.py: code of a schedule is array"),
        ("own.py:changed", ["--option", "cut=3"], "own.py: partner of a schedule is array"),
        ("own.py:changed", ["--option", "value=-5"], "own.py: rank 0: entry 0 of its list: no action has the code -5"),
        ("own.py:changed", ["--option", "value=4611686018427387904"], "rank 0: entry 0 of its list: no action"),
        ("own.py:changed", ["--option", "value=5", "--option", "at=20"], "rank 1: entry 4 of its list: SEND_F"),
        ("own.py:changed", ["--option", "column=partner", "--option", "value=12345"], "rank 0: entry 0 of its list"),
        ("own.py:changed", ["--option", "column=partner", "--option", "value=524289"], "0F0 stands in a pair that"),
        ("own.py:changed", ["--option", "column=first", "--option", "value=-3"], "own.py: first of a schedule is [-3"),
        ("own.py:changed", ["--option", "column=first", "--option", "value=40", "--option", "at=1"], "never falls"),
        ("own.py:changed", ["--option", "column=placement"], "own.py: the placement of a schedule is None"),
        ("own.py:stray", ["--option", "microbatch=-1"], "rank 1: entry 1 of its list: microbatch -1 of a B is outside"),
        ("own.py:stray", ["--option", "microbatch=-2"], "microbatch -2 of a B"),
        ("own.py:stray", ["--option", "microbatch=1048576"], "microbatch 1048576 of a B"),
        ("own.py:stray", ["--option", "stage=-1", "--option", "kind=F"], "stage -1 of a F"),
        ("own.py:stray", ["--option", "stage=65536", "--option", "kind=W"], "stage 65536 of a W"),
        ("own.py:later", [], "later of own.py returned coroutine, no Schedule"),
        ("own.py", ["--option", "depth=7"], "own.py: rank 0: the backward of stage 0, microbatch 7 is missing"),
        ("own.py", ["--option", "width=1"], "own takes no option 'width' (its options are --option depth, -v)"),
        ("own.py", ["-p", "0"], "own on 0 ranks"),
        ("own.py:fixed", [], "asked for 4 ranks and 8 microbatches, and made a schedule of 2 and 2"),
        ("own.py:one", [], "one of own.py cannot be called with (ranks, microbatches)"),
        ("own.py:nothing", [], "own.py has no function 'nothing'"),
        ("own.py:absent", [], "own.py has no function 'absent'"),
        ("nowhere.py:build", [], "there is no file nowhere.py"),
        ("syntax.py:build", [], "syntax.py:2: SyntaxError"),
        ("raises.py:build", [], "raises.py:1: ZeroDivisionError: division by zero"),
        ("imports.py:build", [], "imports.py:1: ModuleNotFoundError: No module named 'absent_package'"),
    ],
)
def test_errors_are_one_line(source: str, arguments: list[str], words: str, folder: Path) -> None:
    (folder / "syntax.py").write_text("x = 1\ny = (\n")
    (folder / "raises.py").write_text("1 / 0\n")
    (folder / "imports.py").write_text("import absent_package\n")
    said = refusal("gen", "--from", source, *arguments, cwd=folder)
    assert words in said
    assert len(said) < 400


def test_what_a_builder_prints_is_no_result(folder: Path) -> None:
    (folder / "own.py").write_text(f"print('while it loads'){SOURCE}")
    ran = pipetrace("gen", "--from", "own.py", "--option", "depth=8", "--json", cwd=folder)
    assert json.loads(ran.stdout)["schedules"][0]["schedule"] == "mine"
    assert ran.stderr.splitlines() == ["while it loads", "a word on the way"]


def test_what_a_builder_writes_past_python_is_no_result(folder: Path) -> None:
    ran = pipetrace("gen", "--from", "own.py:noisy", "--json", cwd=folder)
    assert json.loads(ran.stdout)["schedules"][0]["schedule"] == "mine"
    assert sorted(ran.stderr.splitlines()) == ["a child", "in C", "raw"]


def test_a_name_that_cannot_be_told(folder: Path) -> None:
    assert pipetrace("gen", "--from", "own.py:nameless", "--json", cwd=folder).returncode == 0


def test_files_of_one_name_are_told_apart(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "own.py").write_text(SOURCE)
    both = ("--from", "own.py", "--from", "sub/own.py", "--from", "own.py")
    ran = pipetrace("compare", *both, "1f1b", "--json", cwd=folder)
    assert [of["label"] for of in json.loads(ran.stdout)["schedules"]] == ["1f1b", "own.py", "sub/own.py"]


def test_names_that_are_no_text(folder: Path) -> None:
    name = os.fsdecode(b"a\xff\n.csv")
    (folder / name).write_text("0F0,0B0\n")
    files = [os.fsdecode(b"b\xff\n" + suffix) for suffix in (b".json", b".html", b".csv")]
    ran = pipetrace("gen", "--from", name, *(word for file in files for word in ("-o", file)), cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.splitlines() == [f"wrote b\\xff\\n{suffix}" for suffix in (".json", ".html", ".csv")]
    ran = pipetrace("compare", "--from", name, "-p", 1, "-m", 1, "-o", files[1], "--json", cwd=folder)
    assert json.loads(ran.stdout)["schedules"][0]["schedule"] == "a\\xff\\n"
    run = os.fsdecode(b"RUN\xff\n")
    assert pipetrace("run", "--from", name, "--steps", 1, "-o", run, cwd=folder).returncode == 0
    for arguments in (["read", run], ["read", run, "--json"], ["diff", run], ["diff", run, "--json", "-o", "x.html"]):
        ran = pipetrace(*arguments, cwd=folder)
        assert ran.returncode == 0, ran.stderr
        assert "xff" in ran.stdout + ran.stderr


def test_name_and_file_are_rivals(folder: Path) -> None:
    assert "both name a schedule" in " ".join(misuse("gen", "1f1b", "--from", "own.py", cwd=folder).split())


def test_plugins(folder: Path) -> None:
    environment = plugin(folder, "mine = own:build\nspecified = own:spec\n1f1b = own:build")
    ran = pipetrace("list", cwd=folder, **environment)
    # An option without a flag of its own is named as it is given, which takes a table's room at 80 columns.
    unindented = [line for line in ran.stdout.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in unindented if not line.startswith("name ")] == [*names(), "mine", "specified"]
    assert "All forwards, then all backwards." in ran.stdout
    assert "--option depth" in ran.stdout
    assert ran.stderr.splitlines() == [
        "warning: plug-in '1f1b' of own-package 1.2: there is another schedule '1f1b', which is taken"
    ]
    for name in ("mine", "specified"):
        shown = pipetrace("gen", name, "-m", 3, "--json", cwd=folder, **environment)
        assert json.loads(shown.stdout)["schedules"][0]["microbatches"] == 3
    ran = pipetrace("gen", "specified", "--option", "depth=2", cwd=folder, **environment)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (1, 1)
    assert f"plug-in 'specified' of own-package 1.2: {folder / 'own.py'}:13: ValueError" in ran.stderr
    assert "did you mean mine" in pipetrace("gen", "mien", cwd=folder, **environment).stderr


def test_a_broken_plugin_does_not_break_the_list(folder: Path) -> None:
    (folder / "broken.py").write_text("import sys\nsys.exit(3)\n")
    environment = plugin(folder, "a = broken:build\nb = own:absent\nc = own:nothing\nd = own:one\nmine = own:build")
    ran = pipetrace("list", cwd=folder, **environment)
    assert ran.returncode == 0
    assert "mine" in ran.stdout
    warnings = ran.stderr.splitlines()
    assert len(warnings) == 4
    assert warnings[0] == "warning: plug-in 'a' of own-package 1.2 cannot be loaded: SystemExit: 3"
    ran = pipetrace("gen", "a", cwd=folder, **environment)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert pipetrace("gen", "1f1b", cwd=folder, **environment).returncode == 0


SPECS = """
from own import build
from pipetrace.schedules import ScheduleSpec

good = dict(name="x", build=build, placement="loop", limits="any\\n\\x1b[31m", paper="me")
limits = ScheduleSpec(**good | {"limits": None})
options = ScheduleSpec(**good, options=None)
numbers = ScheduleSpec(**good, options=(3,))
nothing = ScheduleSpec(None, None, None, None, None, None)
odd = ScheduleSpec(**good)
"""


def test_a_plugin_of_wrong_fields_does_not_break_the_list(folder: Path) -> None:
    (folder / "specs.py").write_text(SPECS)
    environment = plugin(
        folder, "\n".join(f"x-{n} = specs:{n}" for n in ("limits", "options", "numbers", "nothing", "odd"))
    )
    for command in (["list"], ["list", "--json"], ["compare", "-p", 2, "-m", 4]):
        ran = pipetrace(*command, cwd=folder, **environment)
        assert ran.returncode == 0, ran.stderr
        assert "x-odd" in ran.stdout
        assert "\x1b" not in ran.stdout
        assert "x-limits" not in ran.stdout
    warnings = pipetrace("list", cwd=folder, **environment).stderr.splitlines()
    assert [line.partition(": ")[2].partition(": ")[2] for line in warnings] == [
        "limits of its ScheduleSpec is None",
        "placement of its ScheduleSpec is None",
        "options of its ScheduleSpec is (3,)",
        "options of its ScheduleSpec is None",
    ]
    ran = pipetrace("gen", "x-limits", cwd=folder, **environment)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
