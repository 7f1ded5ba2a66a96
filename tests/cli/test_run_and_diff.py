"""From a schedule to a real run to a diff, as a user goes."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import tomli_w

from pipetrace.costs_io import parse_costs
from pipetrace.passes import add_communication
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.trace.torch_csv import write_csv
from pipetrace.waiting import Wait, Waiting
from tests.cli.command import misuse, pipetrace, refusal

TRACES = Path(__file__).parent.parent / "data" / "traces"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ZB-H1 with synthetic times."""
    folder = tmp_path_factory.mktemp("runs") / "RUN"
    ran = pipetrace("run", "zb-h1", "-p", 3, "-m", 4, "--costs", "F=3,I=4,W=2", "--steps", 2, "-o", folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    return folder


def test_run_folder(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names >= {"run.toml", "schedule.csv", *(f"rank{rank}_trace.json.gz" for rank in range(3))}
    metadata = json.loads(gzip.decompress((folder / "rank1_trace.json.gz").read_bytes()))["pipetrace"]
    assert metadata["rank"] == 1
    assert metadata["run"]["schedule"] == "zb-h1"


def test_diff_needs_nothing_but_the_folder(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "moved"
    shutil.copytree(folder, alone)
    ran = pipetrace("diff", alone)
    assert ran.returncode == 0, ran.stderr
    trace = alone / "diff.pftrace"
    assert ran.stderr.splitlines() == [
        f"wrote {alone / 'diff.html'}",
        f"wrote {trace}",
        f"next: pipetrace open {trace}",
    ]
    assert max(map(len, ran.stdout.splitlines())) <= 80
    page = (alone / "diff.html").read_text(encoding="utf-8")
    assert "zb-h1" in page
    content = trace.read_bytes()
    places = [content.index(f"rank {rank} {label}".encode()) for rank in range(3) for label in ("ideal", "measured")]
    assert places == sorted(places)
    # Chrome JSON is one option away, and replaces neither.
    ran = pipetrace("diff", alone, "-o", alone / "diff.json.gz")
    assert ran.stderr.splitlines() == [f"wrote {alone / 'diff.json.gz'}"]
    events = json.loads(gzip.decompress((alone / "diff.json.gz").read_bytes()))["traceEvents"]
    assert len({event["args"]["name"] for event in events if event["name"] == "process_name"}) >= 6
    assert trace.read_bytes() == content


def test_diff_for_a_script_or_against_another_run_replaces_no_page(copied: Path) -> None:
    there = {path.name for path in copied.iterdir()}
    for more in (["--json"], ["--before", copied]):
        ran = pipetrace("diff", copied, *more)
        assert ran.returncode == 0, ran.stderr
        assert "wrote" not in ran.stderr
        assert {path.name for path in copied.iterdir()} == there
    page = copied / "x.html"
    assert pipetrace("diff", copied, "--before", copied, "-o", page).stderr.splitlines() == [f"wrote {page}"]
    assert page.is_file()


def test_diff_as_json(folder: Path) -> None:
    ran = pipetrace("diff", folder, "--json", "-o", folder / "x.html")
    document = json.loads(ran.stdout)
    schedule = build("zb-h1", 3, 4)
    assert document["schema"] == 1
    assert len(document["actions"]) == len(schedule)
    assert (document["missing"], document["extra"], document["reordered"]) == ([], [], [])
    assert document["costs"]["default"] == {"F": 3_000_000, "I": 4_000_000, "W": 2_000_000}
    assert document["makespan_ns"]["ideal"] == simulate(schedule, parse_costs("F=3,I=4,W=2")).makespan
    assert document["makespan_ns"]["measured"] >= document["makespan_ns"]["ideal"]
    for action in document["actions"]:
        letter = action["action"].lstrip("0123456789")[0]
        assert action["measured_duration_ns"] >= {"F": 3, "I": 4, "W": 2}[letter] * 1_000_000
        assert action["slip_ns"] >= 0
    assert document["ranks"] == 3
    for rank in document["per_rank"]:
        for which in ("ideal", "measured"):
            assert rank["busy_ns"][which] + rank["global_idle_ns"][which] == document["makespan_ns"][which]


def test_a_transfer_time_joins_the_costs_of_the_run(folder: Path) -> None:
    ran = pipetrace("diff", folder, "--p2p", 5, "--json", "-o", folder / "x.html")
    document = json.loads(ran.stdout)
    assert document["costs"]["default"] == {"F": 3_000_000, "I": 4_000_000, "W": 2_000_000}
    assert document["costs"]["p2p"] == 5_000_000
    assert document["costs_from"] == "as the run's workload was made to take; transfers as given"
    document = json.loads(pipetrace("diff", folder, "--costs", "F=1", "--json", "-o", folder / "x.html").stdout)
    assert document["costs"]["default"]["F"] == 1_000_000


def test_read_a_run(folder: Path) -> None:
    ran = pipetrace("read", folder)
    assert "zb-h1, m = 4, workload sleep" in ran.stdout
    assert "2 steps" in ran.stdout


def test_parts_of_moe_layers_run_and_their_all_to_alls_are_told(tmp_path: Path) -> None:
    ran = pipetrace(
        "run", "dualpipev", "-p", 2, "-m", 4, "--moe-order", "aligned", "--layers", 2, "--ep", 2,
        "--parts", "attn=3,mlp=3,a2a=3", "--steps", 1, "--warmup", 0, "--check", "-o", tmp_path / "RUN",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "messages on 4 ranks" in ran.stdout
    read = pipetrace("read", tmp_path / "RUN")
    assert "2 replicas of 2; times are of replica 0" in read.stdout
    assert "of which exposed" in read.stdout
    steps = json.loads(pipetrace("read", tmp_path / "RUN", "--json").stdout)["steps"]
    assert [step["replica"] for step in steps] == [0, 1]
    diff = pipetrace("diff", tmp_path / "RUN", "--json", "-o", tmp_path / "x.json")
    document = json.loads(diff.stdout)
    assert (document["missing"], document["extra"], document["reordered"]) == ([], [], [])
    ideal, measured = document["all_to_all"]["ideal"], document["all_to_all"]["measured"]
    pairs = [of.pop("pairs") for of in (ideal, measured)]
    assert [pair["pair"] for pair in pairs[0]] == [pair["pair"] for pair in pairs[1]] != []
    assert {pair["compute_ns"] for pair in pairs[0]} == {2 * (3 + 3) * 3 * 1_000_000}
    assert measured == {name: steps[0]["moe"][name.replace("time", "all_to_all")] for name in measured}
    for rank in range(2):
        assert ideal["time_ns"][rank] == 2 * 4 * 2 * 4 * 3_000_000 <= measured["time_ns"][rank]
        for of in (ideal, measured):
            assert of["hidden_ns"][rank] + of["exposed_ns"][rank] == of["time_ns"][rank]
            assert of["hidden_ns"][rank] > 0
    assert "hidden: while the rank computes" in pipetrace("diff", tmp_path / "RUN", "-o", tmp_path / "x.json").stdout


def test_parts_go_with_layers_that_have_them(tmp_path: Path) -> None:
    out = ("-o", tmp_path / "RUN")
    said = misuse("run", "1f1b", "-p", 2, "-m", 2, "--workload", "transformer", "--moe-order", "aligned", *out)
    assert "--moe-order is for --workload sleep" in " ".join(said.replace("│", " ").split())
    assert "whole stages is one without" in misuse("run", "1f1b", "--grain", "stage", *out)
    assert "whole stages of sleep have no all-to-alls" in refusal("run", "1f1b", "-p", 2, "-m", 2, "--ep", 2, *out)


def test_real_gradients_are_those_of_one_process(tmp_path: Path) -> None:
    ran = pipetrace(
        "run", "zb-h1", "-p", 2, "-m", 4, "--workload", "transformer", "--hidden", 32, "--sequence", 16,
        "--steps", 1, "--check", "-o", tmp_path / "RUN",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "equal" in ran.stdout
    ran = pipetrace("diff", tmp_path / "RUN")
    assert ran.returncode == 0, ran.stderr
    assert "fitted to this run" in ran.stdout


def test_traces_of_others_with_their_schedule(tmp_path: Path) -> None:
    traces = TRACES / "rt-zbh1_pp4_mb8_mlp"
    ran = pipetrace("diff", traces, "--from", traces / "compute_only.csv", "-o", "x.json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "x.json").is_file()
    assert "no schedule.csv" in refusal("diff", traces)
    assert "8 ranks, the recording 4" in refusal("diff", traces, "--schedule", "1f1b", "-p", 8)
    unlabelled = TRACES / "1f1b_pp2_mb4_mlp"
    assert "received 4 times" in refusal("diff", unlabelled, "--schedule", "1f1b", "-p", 2, "-m", 5)
    ran = pipetrace("diff", unlabelled, "--schedule", "1f1b", "-p", 2, "-m", 4)
    assert ran.returncode == 0, ran.stderr
    assert "16 actions, confidence 100%" in " ".join(ran.stdout.split())


def test_actions_that_were_not_run_are_reported_first() -> None:
    ran = pipetrace("diff", TRACES / "gpipe_pp2_mb4_mlp", "--schedule", "gpipe", "-p", 2, "-m", 5)
    assert ran.returncode == 0, ran.stderr
    assert "missing (4): 0F4 0B4 1F4 1B4" in ran.stdout


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    assert "file" in refusal("run", "zb-h1", "-o", tmp_path / "file")
    assert "file" in refusal("run", "zb-h1", "-o", tmp_path / "file" / "RUN")
    assert "full" in refusal("run", "zb-h1", "-o", tmp_path / "full")
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"
    assert "workload" in refusal("run", "zb-h1", "--workload", "dream", "-o", tmp_path / "RUN")
    assert "steps" in refusal("run", "zb-h1", "--steps", 0, "-o", tmp_path / "RUN")
    assert "-o" in misuse("run", "zb-h1")
    assert "--schedule" in misuse("diff", TRACES, "-p", 2)
    assert "cannot tell the format of x.pdf" in refusal("diff", TRACES, "-o", "x.pdf")


def test_a_spoilt_run_folder_gets_one_line(folder: Path, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(folder, spoilt)
    (spoilt / "schedule.csv").write_text("0F0,0F0\n")
    assert "schedule.csv" in refusal("diff", spoilt)
    (spoilt / "rank1_trace.json.gz").write_bytes(b"\x1f\x8b")
    assert "rank1_trace.json.gz" in refusal("diff", spoilt)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "RUN")
    return tmp_path / "RUN"


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("1f1b", (3, 4), "is not what was run: 24 actions"),
        ("zb-h2", (3, 4), "is not what was run: "),
        ("zb-h1", (2, 4), "is of another run: it has 2 ranks, the traces beside it 3"),
        ("zb-h1", (3, 5), "is of another run: it has 5 microbatches, the traces beside it 4"),
    ],
)
def test_a_schedule_of_another_run_is_noticed(name: str, sizes: tuple[int, int], words: str, copied: Path) -> None:
    write_csv(build(name, *sizes), copied / "schedule.csv")
    said = refusal("diff", copied)
    assert words in said
    assert "--schedule NAME" in said
    # What was really run can still be said by hand.
    assert pipetrace("diff", copied, "--schedule", "zb-h1", "-p", 3, "-m", 4, "-o", copied / "x.json").returncode == 0


@pytest.mark.parametrize(
    ("against", "says"),
    [
        (("--schedule", "1f1b", "-m", 4), "! The run says zb-h1, m = 4; it is held against 1f1b, m = 4"),
        (("--schedule", "zb-h1", "-m", 3), "! The run says zb-h1, m = 4; it is held against zb-h1, m = 3"),
        (("--schedule", "zb-h1", "-m", 4), None),
        (("--from", "schedule.csv"), None),
    ],
)
def test_another_schedule_than_the_run_says_is_told_first(
    against: tuple[object, ...], says: str | None, copied: Path
) -> None:
    where = [copied / word if word == "schedule.csv" else word for word in against]
    size = () if against[0] == "--from" else ("-p", 3)
    page = copied / "x.html"
    printed = pipetrace("diff", copied, *where, *size, "-o", page).stdout
    document = json.loads(pipetrace("diff", copied, *where, *size, "-o", page, "--json").stdout)
    text = page.read_text(encoding="utf-8")
    if says is None:
        assert "The run says" not in printed + text + " ".join(document["notes"])
    else:
        assert " ".join(printed.splitlines()[:2]).startswith(says)
        assert document["notes"][0].startswith(says[2:])
        assert -1 < text.index(says[2:]) < text.index('id="verdict"')


@pytest.mark.parametrize("what", ["schedule", "ranks", "microbatches", "started"])
def test_a_record_of_another_run_is_noticed(what: str, copied: Path) -> None:
    table = tomllib.loads((copied / "run.toml").read_text())
    table[what] = "1f1b" if what == "schedule" else table[what] + 1
    (copied / "run.toml").write_text(tomli_w.dumps(table))
    assert f"run.toml is of another run than the traces beside it: it names {what} " in refusal("diff", copied)


def test_traces_of_two_runs_in_one_folder_are_noticed(copied: Path) -> None:
    path = copied / "rank2_trace.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["pipetrace"]["run"]["started"] += 1
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    for command in ("diff", "read"):
        assert "ranks 0 and 2 are of different runs" in refusal(command, copied)


@pytest.mark.parametrize("text", ["ranks = " + "9" * 5000, "a = " + "[" * 5000, "x", "schema = 99"])
def test_a_record_that_cannot_be_read(text: str, copied: Path) -> None:
    (copied / "run.toml").write_text(text)
    said = refusal("diff", copied)
    assert "run.toml" in said
    assert len(said) < 500


def test_hostile_words_of_a_run_are_printed_as_escapes(copied: Path) -> None:
    for path in copied.glob("rank*.json.gz"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["pipetrace"]["run"] |= {"schedule": "a\x1b[31m\nb", "workload": "w\n", "options": {"o\n": "x" * 5000}}
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    (copied / "run.toml").unlink()
    ran = pipetrace("read", copied)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "a\\x1b[31m\\nb" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_a_run_of_a_csv_with_communication(tmp_path: Path) -> None:
    schedule = add_communication(build("1f1b", 2, 2))
    assert schedule.has_communication
    write_csv(schedule, tmp_path / "x.csv")
    for command in ("gen", "show", "compare"):
        sizes = ("-p", 2, "-m", 2) if command == "compare" else ()
        assert pipetrace(command, "--from", "x.csv", *sizes, "--json", cwd=tmp_path).returncode == 0
    ran = pipetrace("run", "--from", "x.csv", "--steps", 1, "-o", "RUN", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert pipetrace("diff", "RUN", "--json", cwd=tmp_path).returncode == 0


def test_faults_on_purpose(tmp_path: Path) -> None:
    run = ("run", "dualpipe", "-p", 6, "-m", 12, "--costs", "F=0,I=0,W=0", "--steps", 1, "-o", tmp_path / "RUN")
    assert "cannot read the fault 'rank2'" in refusal(*run, "--inject", "rank2")
    assert "names rank 6" in refusal(*run, "--inject", "rank6:compute*2")
    assert "without tags rank" in refusal(*run, "--inject", "no-tags")
    assert not (tmp_path / "RUN").exists()
    ran = pipetrace(*run, "--inject", "no-tags", "--inject", "rank1:gap+1ms", "--no-preflight", "--check")
    assert ran.returncode == 1, ran
    assert ran.stdout.startswith("check FAILED")
    assert len(ran.stdout.splitlines()) == 1
    assert tomllib.loads((tmp_path / "RUN" / "run.toml").read_text())["options"]["inject"] == [
        "no-tags",
        "rank1:gap+1ms",
    ]


def test_repeated_runs_in_another_way_of_waiting(tmp_path: Path) -> None:
    runs = tmp_path / "RUNS"
    ran = pipetrace(
        "run", "zb-h1", "-p", 2, "-m", 4, "--costs", "F=2,I=2,W=2", "--steps", 1, "--repeat", 2,
        "--wait", "dataflow", "--check", "-o", runs,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["1", "2"]
    assert lines[2].startswith("makespan ")
    assert "spread" in lines[3]
    schedule, of = build("zb-h1", 2, 4), parse_costs("F=2,I=2,W=2")
    document = json.loads(pipetrace("diff", runs / "2", "--json", "-o", tmp_path / "x.json").stdout)
    ideal = simulate(schedule, of, Waiting(Wait.DATAFLOW)).makespan
    assert ideal != simulate(schedule, of).makespan
    assert document["makespan_ns"]["ideal"] == ideal
    said = refusal("diff", runs)
    assert "folders of runs: 1, 2" in said
    assert f"give one of these, e.g. {runs / '1'}" in said
    assert "goes with --wait dataflow" in misuse("run", "zb-h1", "--no-reorder", "-o", tmp_path / "x")


def test_a_run_that_is_replaced_is_told(copied: Path) -> None:
    ran = pipetrace("run", "1f1b", "-p", 2, "-m", 2, "--steps", 1, "-o", copied)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"this run replaces that of 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d in ", ran.stderr)
    assert tomllib.loads((copied / "run.toml").read_text())["schedule"] == "1f1b"
