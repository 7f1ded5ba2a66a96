"""Schedules as CSV: what is written is read back, what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind, Pair
from pipetrace.errors import DeadlockError, OutputError, ScheduleError
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.trace.torch_csv import format_csv, parse_csv, read_csv, write_csv

DATA = Path(__file__).parent.parent / "data"
GOLDEN = json.loads((DATA / "golden.json").read_text(encoding="utf-8"))
GOOD = "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: f"{g['schedule']}-p{g['p']}-m{g['m']}")
def test_equals_the_golden_orders(golden: dict[str, object]) -> None:
    ranks = golden["ranks"]
    assert isinstance(ranks, list)
    built = pipetrace.build(str(golden["schedule"]), int(str(golden["p"])), int(str(golden["m"])))
    text = "".join(order.replace(" ", ",") + "\n" for order in ranks)
    assert format_csv(built) == text
    read = parse_csv(text, built.name)
    assert read.schedule.same_order(built)
    assert read.schedule.placement == built.placement
    assert read.schedule.microbatches == built.microbatches
    assert read.notes == ()


@pytest.mark.parametrize("folder", ["rt-zbh1_pp4_mb8_mlp", "zbv_pp2_mb4_mlp"])
def test_reads_what_torch_wrote(folder: str) -> None:
    compute = read_csv(DATA / "traces" / folder / "compute_only.csv")
    comms = read_csv(DATA / "traces" / folder / "compute_comms.csv")
    assert compute.notes == ()
    assert "SEND_F" in comms.notes[0]
    assert "REDUCE_GRAD" in comms.notes[0]
    assert sorted(compute.schedule.code.tolist()) == sorted(comms.schedule.code.tolist())
    assert compute.schedule.placement == comms.schedule.placement


def test_reads_a_v_placement_off_the_actions() -> None:
    schedule = read_csv(DATA / "traces" / "zbv_pp2_mb4_mlp" / "compute_only.csv").schedule
    assert schedule.placement == Placement(2, ((0, 1, 1, 0),), "custom")
    assert schedule.name == "compute_only"


def test_pairs_and_pipes() -> None:
    text = "0F0,d1:1F1,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n"
    with pytest.raises(ScheduleError, match="stage 0 of pipe 1"):
        parse_csv(text, "x")
    two = "0F0,d1:1F1,d1:1B1,0B0\nd1:0F1,1F0,1B0,d1:0B1\n"
    schedule = parse_csv(two, "two").schedule
    assert schedule.placement.table == ((0, 1), (1, 0))
    assert format_csv(schedule) == two
    paired = parse_csv("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n", "pairs").schedule
    assert list(paired.actions(1))[1] == Pair(Action(Kind.F, 1, 1), Action(Kind.B, 1, 0))


def test_mends_line_ends_and_byte_order_marks() -> None:
    plain = parse_csv(GOOD, "x").schedule
    for text in (
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        GOOD + "\n\n",
        GOOD.replace(",", " ,\t"),
        "\ufeff" + GOOD,
    ):
        read = parse_csv(text, "x")
        assert read.schedule.same_order(plain)
        assert len(read.notes) == text.startswith("\ufeff")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "F is empty"),
        ("\n\n", "F is empty"),
        ("0F0,0B0x\n", "line 1, column 2: '0B0x' is no action"),
        ("0F0,0B0;\n", "line 1, column 2"),
        ("rank,0F0,0B0\n", "line 1, column 1: 'rank'"),
        ("0F0,0F0,0B0\n", "line 1, column 2: 0F0 stands already in line 1, column 1"),
        ("0F0,0B0\n1F0,0B0\n", "line 2, column 2: 0B0 stands already in line 1, column 2"),
        ("0F0,0B0,1F1\n1F0,1B0\n", "line 2, column 1: 1F0 puts stage 1 on rank 1, but line 1 has it on rank 0"),
        ("0F0,0B0\n\n1F0,1B0\n", "line 2: rank 1 has no compute action"),
        ("0F0,0B0\n,,,\n", "line 2: rank 1 has no compute action"),
        ("0F0,0B0\n0UNSHARD\n", "line 2, column 1: 0UNSHARD puts stage 0"),
        ("0F0,0B0\n2F0,2B0\n", "no rank has an action of stage 1"),
        ("0F0,0B0,d1:0F1,d1:0B1\n1F0,1B0\n", "stage 1 of pipe 1"),
        ("0F0,0F1,0B0\n", "the backward of stage 0, microbatch 1 is missing"),
        ("0F0,0I0\n", "the W of stage 0, microbatch 0 is missing"),
        ("0F0,0F2,0B0,0B2\n", "the F of stage 0, microbatch 1 is missing"),
        ("0F0,0B0,0I0\n", "0B0 is a full backward"),
        ("0F0,0F1048574\n", "microbatch"),
        ("0F0@0.attn,0B0\n", "line 1, column 1: 0F0@0.attn is a part"),
        ("0F0,\x0c0B0\n", "line 1, column 2"),
        ("0F0,\x000B0\n", "line 1, column 2"),
        ("0F99999999,0B0\n", "line 1, column 1"),
    ],
)
def test_refuses_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_csv(text, "x", source="F")
    assert message in caught.value.message
    assert caught.value.message.startswith("F")
    assert "\n" not in caught.value.message


def test_deadlocks_are_named() -> None:
    with pytest.raises(DeadlockError, match=r"F: deadlock: rank 0 at 0B0 waits for 1B0"):
        parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "x", source="F")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"0F0,0B0\n1F0,\xff1B0\n")
    (tmp_path / "utf16.csv").write_bytes(GOOD.encode("utf-16"))
    for path, message in (
        (tmp_path / "absent.csv", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "bad.csv", "line 2, column 2: not UTF-8 (byte 12)"),
        (tmp_path / "utf16.csv", "not UTF-8"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(ScheduleError) as caught:
            read_csv(path)
        assert message in caught.value.message
        assert "\n" not in caught.value.message


def test_writes_a_file(tmp_path: Path) -> None:
    schedule = pipetrace.build("zb-h1", 3, 5)
    path = tmp_path / "mine.csv"
    write_csv(schedule, path)
    read = read_csv(path)
    assert read.schedule.same_order(schedule)
    assert read.schedule.name == "mine"
    assert read_csv(path, name="other").schedule.name == "other"
    with pytest.raises(OutputError):
        write_csv(schedule, tmp_path / "absent" / "x.csv")


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Valid schedules over any placement of up to two pipes: a topological order of all actions, dealt to ranks."""
    ranks = draw(st.integers(1, 4))
    pipes = draw(st.integers(1, 2))
    stages = draw(st.integers(ranks, 6))
    table = []
    for _ in range(pipes):
        rest = draw(st.lists(st.integers(0, ranks - 1), min_size=stages - ranks, max_size=stages - ranks))
        table.append(tuple(draw(st.permutations([*range(ranks), *rest]))))
    placement = Placement(ranks, tuple(table))
    microbatches = pipes * draw(st.integers(1, 3))
    chains = []
    for microbatch in range(microbatches):
        pipe = microbatch // (microbatches // pipes)
        split = draw(st.booleans())
        chain = [Action(Kind.F, s, microbatch, pipe) for s in range(stages)]
        for s in reversed(range(stages)):
            chain.append(Action(Kind.I if split else Kind.B, s, microbatch, pipe))
            if split:
                chain.append(Action(Kind.W, s, microbatch, pipe))
        chains.append(chain)
    turns = draw(st.permutations([i for i, chain in enumerate(chains) for _ in chain]))
    lists: list[list[Action | Pair]] = [[] for _ in range(ranks)]
    for turn in turns:
        action = chains[turn].pop(0)
        mine = lists[placement.rank(action.stage, action.pipe)]
        last = mine[-1] if mine else None
        # Fusing an F with a B behind it is safe where they cannot wait for each other: only with nothing in between.
        if (
            isinstance(last, Action)
            and last.kind is Kind.F
            and action.kind in (Kind.B, Kind.I)
            and placement.ranks == 1
            and (last.microbatch != action.microbatch)
        ):
            mine[-1] = Pair(last, action)
        else:
            mine.append(action)
    return Schedule.from_actions("drawn", placement, microbatches, lists)


@given(schedules(), st.data())
@settings(deadline=None)
def test_round_trip(schedule: Schedule, data: st.DataObject) -> None:
    rows = format_csv(schedule).splitlines()
    idle = data.draw(st.integers(0, 3))
    text = "\n".join(data.draw(st.sampled_from(["", ","])) + row.replace(",", "," * (1 + idle)) for row in rows)
    read = parse_csv(text, schedule.name).schedule
    assert read.same_order(schedule)
    assert read.placement.table == schedule.placement.table
    assert read.microbatches == schedule.microbatches
    assert format_csv(read) == format_csv(schedule)


@given(st.text(st.sampled_from("01FBIWd:;()OVERLAP_SEN,\n\r \0\ufeff@.x"), max_size=40))
@settings(deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    message = "F"
    try:
        assert len(parse_csv(text, "x", source="F").schedule) > 0
    except ScheduleError as error:
        message = error.message
    assert message.startswith("F")
    assert "\n" not in message
