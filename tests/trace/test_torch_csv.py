"""Schedules as CSV: what is written is read back, what is wrong is named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind, Pair
from pipetrace.errors import DeadlockError, OutputError, ScheduleError
from pipetrace.passes import MoeOrder, Overlap, add_communication, expand_moe
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.simulate import simulate
from pipetrace.trace.torch_csv import format_csv, not_for_torch, parse_csv, read_csv, write_csv
from tests.passes.test_expand_moe import overlaps
from tests.strategies import Sizes, sizes

DATA = Path(__file__).parent.parent / "data"
GOLDEN = json.loads((DATA / "golden.json").read_text(encoding="utf-8"))
COMMS = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
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
    (note,) = comms.notes
    assert "REDUCE_GRAD" in note
    assert "SEND" not in note
    assert comms.schedule.has_communication
    assert comms.schedule.compute_only().same_order(compute.schedule)
    assert compute.schedule.placement == comms.schedule.placement
    # What is written is torch's file without what concerns whole stages.
    cells = (DATA / "traces" / folder / "compute_comms.csv").read_text(encoding="utf-8").split()
    kept = [[cell for cell in row.split(",") if not re.search("SHARD|REDUCE", cell)] for row in cells]
    assert format_csv(comms.schedule) == "".join(",".join(row) + "\n" for row in kept)


def test_reads_a_v_placement_off_the_actions() -> None:
    schedule = read_csv(DATA / "traces" / "zbv_pp2_mb4_mlp" / "compute_only.csv").schedule
    assert schedule.placement == Placement.v(2)
    assert schedule.name == "compute_only"


def test_pairs_and_pipes() -> None:
    text = "0F0,d1:1F1,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n"
    with pytest.raises(ScheduleError, match="stage 0 of pipe 1"):
        parse_csv(text, "x")
    two = "0F0,d1:1F1,d1:1B1,0B0\nd1:0F1,1F0,1B0,d1:0B1\n"
    schedule = parse_csv(two, "two").schedule
    assert schedule.placement == Placement.mirrored(2)
    assert format_csv(schedule) == two
    with_sends = add_communication(schedule)
    assert "d1:0SEND_F1" in format_csv(with_sends)
    assert parse_csv(format_csv(with_sends), "two").schedule.same_order(with_sends)
    paired = parse_csv("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,1B2\n", "pairs").schedule
    assert list(paired.actions(1))[1] == Pair(Action(Kind.F, 1, 1), Action(Kind.B, 1, 0))


def test_stages_may_be_sharded_again_and_again() -> None:
    read = parse_csv("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD,0OPTIM\n", "x")
    assert format_csv(read.schedule) == "0F0,0B0\n"
    assert read.notes == (
        "what concerns whole stages was dropped, as a schedule has none of it: "
        "1 OPTIM, 1 REDUCE_GRAD, 2 RESHARD, 2 UNSHARD",
    )


def test_mends_line_ends_and_byte_order_marks() -> None:
    plain = parse_csv(GOOD, "x").schedule
    for text in (
        GOOD.replace("\n", "\r\n"),
        GOOD.rstrip("\n"),
        GOOD + "\n\n",
        GOOD.replace("\n", "\r"),
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
        ('"0F0","0B0"\n', "line 1, column 1: '\"0F0\"' is no action"),
        ("0F0;0B0\n", "line 1, column 1: '0F0;0B0' is no action"),
        ("0F0,0SEND_F0x,0B0\n1RECV_F0,1F0,1B0\n", "line 1, column 2: '0SEND_F0x' is no action"),
        ("0F0,0SEND_F,0B0\n", "line 1, column 2: '0SEND_F': SEND_F of stage 0 needs a microbatch"),
        ("0F0,0UNSHARD0,0B0\n", "line 1, column 2: '0UNSHARD0': UNSHARD of stage 0 takes no microbatch"),
        (COMMS.replace("1F0", "1RECV_F0"), "line 2, column 2: 1RECV_F0 stands already in line 2, column 1"),
        (COMMS.replace("0SEND_F0,", ""), "rank 0: 0SEND_F0 is missing"),
        (COMMS.replace("0SEND_F0", "1SEND_F0"), "line 2, column 1: 1RECV_F0 puts stage 1 on rank 1, but line 1"),
        ("0SEND_F0\n1RECV_F0\n", "line 1: rank 0 has no compute action"),
        ("0F0@0.attn,0B0\n", "rank 0: 0B0 stands beside parts of layers"),
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


@given(schedules(), st.booleans(), st.data())
def test_round_trip(schedule: Schedule, communicates: bool, data: st.DataObject) -> None:
    if communicates:
        schedule = add_communication(schedule)
    rows = format_csv(schedule).splitlines()
    idle = data.draw(st.integers(0, 3))
    text = "\n".join(data.draw(st.sampled_from(["", ","])) + row.replace(",", "," * (1 + idle)) for row in rows)
    read = parse_csv(text, schedule.name).schedule
    assert read.same_order(schedule)
    assert read.placement == Placement.of_table(schedule.ranks, schedule.placement.table)
    assert read.microbatches == schedule.microbatches
    assert format_csv(read) == format_csv(schedule)


@given(st.text(st.sampled_from("01FBIWd:;()OVERLAP_SENDC,\n\r \0\ufeff@.x"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    message = "F"
    try:
        assert len(parse_csv(text, "x", source="F").schedule) > 0
    except ScheduleError as error:
        message = error.message
    assert message.startswith("F")
    assert "\n" not in message


@settings(max_examples=40)
@given(sizes(ranks=4, microbatches=8), overlaps)
def test_parts_of_layers_are_read_back(size: Sizes, overlap: Overlap) -> None:
    expanded = expand_moe(size.build(), overlap)
    read = parse_csv(format_csv(expanded), expanded.name).schedule
    assert read.same_order(expanded)
    assert read.placement.table == expanded.placement.table
    assert simulate(read).makespan == simulate(expanded).makespan


def test_parts_as_text() -> None:
    text = format_csv(expand_moe(pipetrace.build("1f1b", 1, 1), Overlap(MoeOrder.SERIAL)))
    assert text == (
        "0F0@0.attn,0F0@0.dispatch,0F0@0.mlp,0F0@0.combine,|,0B0@0.combine,0B0@0.mlp,0B0@0.dispatch,0B0@0.attn\n"
    )


def test_fences_stand_between_parts_only() -> None:
    with pytest.raises(ScheduleError, match="CSV: line 1, column 2: a fence stands between whole stages"):
        parse_csv("0F0,|,0B0\n", "x")


def test_what_torch_does_not_read_is_known() -> None:
    assert "2 pipes" in not_for_torch(pipetrace.build("dualpipe", 4, 8))
    assert "4 pipes" in not_for_torch(pipetrace.build("chimera", 4, 8, pipes=4))
    assert not_for_torch(pipetrace.build("dualpipev", 4, 8)) == not_for_torch(pipetrace.build("zbv", 4, 8)) == ""
