from __future__ import annotations

from dataclasses import replace

import pytest

import pipetrace
from pipetrace.action import NO_ACTION, Action, Kind, Pair, parse, parse_action
from pipetrace.errors import DeadlockError, RunError
from pipetrace.execute.program import check_transfers, compile_rank, preflight, tag_of
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule

# Two ranks, four stages, folded: stages 1 and 2 share rank 1, stages 0 and 3 rank 0.
V = Placement(2, ((0, 1, 1, 0),), "v")


def schedule_of(placement: Placement, microbatches: int, *lists: str) -> Schedule:
    return Schedule.from_actions("t", placement, microbatches, [[parse(a) for a in text.split()] for text in lists])


def test_each_rank_of_1f1b_sends_forward_and_back() -> None:
    program = compile_rank(pipetrace.build("1f1b", 3, 2), 1)
    assert [str(t.receive) for t in program.receives] == ["1RECV_F0", "1RECV_F1", "1RECV_B0", "1RECV_B1"]
    assert [str(t.send) for t in program.sends] == ["1SEND_F0", "1SEND_F1", "1SEND_B0", "1SEND_B1"]
    first = program.sends[0]
    assert (first.sender, first.receiver, str(first.receive)) == (1, 2, "2RECV_F0")
    back = program.sends[2]
    assert (back.sender, back.receiver, str(back.receive)) == (1, 0, "0RECV_B0")
    assert [op.text for op in program.ops] == ["1F0", "1F1", "1B0", "1B1"]


def test_the_ends_of_the_pipeline_take_and_give_nothing() -> None:
    schedule = pipetrace.build("gpipe", 2, 1)
    forward, backward = compile_rank(schedule, 0).ops
    assert forward.halves[0].takes == NO_ACTION
    assert backward.halves[0].gives == NO_ACTION
    forward, backward = compile_rank(schedule, 1).ops
    assert forward.halves[0].gives == NO_ACTION
    assert backward.halves[0].takes == NO_ACTION


def test_a_weight_gradient_waits_for_nobody() -> None:
    program = compile_rank(pipetrace.build("zb-h1", 2, 2), 0)
    weight = next(op for op in program.ops if op.halves[0].action.kind is Kind.W)
    assert weight.receives == ()
    assert weight.halves[0].sends is None


def test_stages_on_one_rank_hand_over_in_place() -> None:
    schedule = schedule_of(V, 1, "0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0")
    program = compile_rank(schedule, 1)
    assert [str(t.receive) for t in program.receives] == ["1RECV_F0", "2RECV_B0"]
    assert [str(t.send) for t in program.sends] == ["2SEND_F0", "1SEND_B0"]
    forward = program.ops[0].halves[0]
    assert forward.sends is None
    assert forward.gives == parse_action("2RECV_F0").code == program.ops[1].halves[0].takes


def test_a_pair_has_two_halves_and_waits_for_both() -> None:
    schedule = schedule_of(
        Placement.loop(2),
        2,
        "0F0 0F1 0B0 0B1",
        "1F0 (1F1;1B0)OVERLAP_F_B 1B1",
    )
    op = compile_rank(schedule, 1).ops[1]
    assert op.text == str(Pair(parse_action("1F1"), parse_action("1B0")))
    assert [str(t.receive) for t in op.receives] == ["1RECV_F1"]
    assert [str(half.action) for half in op.halves] == ["1F1", "1B0"]
    assert op.halves[1].sends is not None
    preflight(schedule)


@pytest.mark.parametrize("name", pipetrace.schedules.names())
def test_every_schedule_has_matching_ends_and_unique_tags(name: str) -> None:
    schedule = pipetrace.build(name, 4, 8)
    programs = preflight(schedule)
    sends = [t for program in programs for t in program.sends]
    receives = [t for program in programs for t in program.receives]
    assert sorted(t.tag for t in sends) == sorted(t.tag for t in receives)
    assert len({t.tag for t in sends}) == len(sends)


def test_tags_differ_by_pipe_kind_stage_and_microbatch() -> None:
    tags = {
        tag_of(Action(kind, stage, microbatch, pipe).code, 3, 5)
        for kind in (Kind.RECV_F, Kind.RECV_B)
        for stage in range(3)
        for microbatch in range(5)
        for pipe in range(2)
    }
    assert tags == set(range(60))


def test_a_send_without_its_receive_is_named() -> None:
    one, two = preflight(pipetrace.build("gpipe", 2, 2))
    with pytest.raises(RunError, match="0SEND_F1 between ranks 0 and 1 is a send without its other end"):
        check_transfers([one, replace(two, ops=(two.ops[0], *two.ops[2:]))])
    with pytest.raises(RunError, match="1RECV_F1 between ranks 0 and 1 is a receive without its other end"):
        check_transfers([replace(one, ops=(one.ops[0], *one.ops[2:])), two])


def test_a_deadlock_is_found_before_anything_starts() -> None:
    schedule = schedule_of(Placement.loop(2), 1, "0F0 0B0", "1B0 1F0")
    with pytest.raises(DeadlockError):
        preflight(schedule)


def test_an_op_names_the_rows_of_its_rank_that_it_needs() -> None:
    schedule = pipetrace.build("zbv", 2, 2)
    for rank in range(2):
        program = compile_rank(schedule, rank)
        texts = {op.row: op.text for op in program.ops}
        for op in program.ops:
            needed = {texts[row] for row in op.after}
            (action,) = (half.action for half in op.halves)
            stage, microbatch = action.stage, action.microbatch
            wanted = {
                "F": {f"{stage - 1}F{microbatch}"},
                "I": {f"{stage}F{microbatch}", f"{stage + 1}I{microbatch}"},
                "W": {f"{stage}I{microbatch}"},
            }[action.kind.name]
            assert needed == wanted & set(texts.values())


def test_without_tags_the_list_must_be_kept() -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    preflight(schedule, tags=False)
    preflight(schedule, reorder=True)
    with pytest.raises(RunError, match="order of the list"):
        preflight(schedule, tags=False, reorder=True)
