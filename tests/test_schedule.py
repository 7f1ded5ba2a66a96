from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import COMPUTE_KINDS, MAX_MICROBATCH, Action, Kind, Pair, parse
from pipetrace.errors import ActionError, DeadlockError, ScheduleError
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules import build
from tests.strategies import Sizes, actions, sizes


def of(text: str, *, placement: Placement | None = None, microbatches: int = 1) -> Schedule:
    """A schedule from rows of actions, one a rank, separated by `|`."""
    lists = [[parse(word) for word in row.split()] for row in text.split("|")]
    return Schedule.from_actions("test", placement or Placement.loop(len(lists)), microbatches, lists)


def test_actions_come_back_in_order() -> None:
    order = RankOrder()
    order.F(0, 0)
    order.F(0, 1)
    order.B(0, 0)
    order.I(0, 1)
    order.W(0, 1)
    schedule = Schedule.from_orders("test", Placement.loop(1), 2, [order])
    assert " ".join(map(str, schedule.actions(0))) == "0F0 0F1 0B0 0I1 0W1"
    assert (len(schedule), schedule.ranks, schedule.stages) == (5, 1, 1)
    assert schedule.validate() is schedule


def test_a_pair_is_one_row() -> None:
    schedule = of("0F0 (0F1;0B0)OVERLAP_F_B 0B1", microbatches=2).validate()
    assert len(schedule) == 3
    assert list(schedule.actions(0))[1] == Pair(Action(Kind.F, 0, 1), Action(Kind.B, 0, 0))


def test_valid_with_two_pipes_in_a_mirrored_placement() -> None:
    placement = Placement(2, ((0, 1), (1, 0)))
    schedule = of("0F0 0B0 d1:1F1 d1:1B1 | d1:0F1 1F0 1B0 d1:0B1", placement=placement, microbatches=2)
    assert schedule.validate() is schedule


@pytest.mark.parametrize(
    ("rows", "microbatches", "words"),
    [
        ("0F0 0B0 | 1F0", 1, "rank 1: the backward of stage 1, microbatch 0 is missing"),
        ("0F0 0B0 | 1B0", 1, "rank 1: the F of stage 1, microbatch 0 is missing"),
        ("0F0 0I0 | 1F0 1B0", 1, "rank 0: the W of stage 0, microbatch 0 is missing"),
        ("0F0 0W0 | 1F0 1B0", 1, "rank 0: the I of stage 0, microbatch 0 is missing"),
        ("0F0 0F0 0B0 | 1F0 1B0", 1, "rank 0: 0F0 stands 2 times"),
        ("0F0 0B0 0B0 0B0 | 1F0 1B0", 1, "rank 0: 0B0 stands 3 times"),
        ("0F0 0B0 0W0 | 1F0 1B0", 1, "rank 0: 0B0 is a full backward, but an I or W"),
        ("0F0 0B0 1F0 | 1B0", 1, "rank 0: 1F0 stands on the wrong rank: the loop placement puts stage 1 on rank 1"),
        ("0F0 0B0 2F0 | 1F0 1B0", 1, "rank 0: 2F0 names a stage that is not there: the placement has 2"),
        ("0F0 0B0 | 1F0 1B0 1F1", 1, "rank 1: 1F1 names a microbatch that is not there: the step has 1"),
        ("0F0 0B0 | 1F0 d1:1B0", 1, "rank 1: d1:1B0 names a pipe that is not there: the placement has 1"),
        ("0UNSHARD 0F0 0B0 | 1F0 1B0", 1, "rank 0: 0UNSHARD is no F, B, I or W, nor a SEND or RECV"),
        ("0F0 0B0 |", 1, "rank 1: the F of stage 1, microbatch 0 is missing"),
        ("0F0 0B0 | 1F0 1B0", 1000, "rank 0: the F of stage 0, microbatch 1 is missing"),
    ],
)
def test_what_is_wrong_is_named(rows: str, microbatches: int, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        of(rows, microbatches=microbatches).validate()


def test_microbatches_of_another_pipe_are_refused() -> None:
    placement = Placement(2, ((0, 1), (1, 0)))
    with pytest.raises(ScheduleError, match="rank 0: 0F1 names a microbatch of another pipe"):
        of("0F1 0B1 d1:1F0 d1:1B0 | d1:0F0 1F1 1B1 d1:0B0", placement=placement, microbatches=2).validate()
    with pytest.raises(ScheduleError, match="3 microbatches cannot be shared by 2 pipes"):
        of("0F0 | 1F0", placement=placement, microbatches=3).validate()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0B0 0F0 | 1F0 1B0", "rank 0 at 0B0 waits for 0F0; rank 1 at 1F0 waits for 0F0"),
        ("0F0 0B0 0F1 0B1 | 1F0 1F1 1B0 1B1", "rank 0 at 0B0 waits for 1B0; rank 1 at 1F1 waits for 0F1"),
        ("0F0 0F1 0W0 0I0 0B1 | 1F0 1B0 1F1 1B1", "rank 0 at 0W0 waits for 0I0"),
    ],
)
def test_deadlock_names_who_waits_for_what(rows: str, words: str) -> None:
    microbatches = 2 if "F1" in rows else 1
    with pytest.raises(DeadlockError, match=words):
        of(rows, microbatches=microbatches).validate()


@pytest.mark.parametrize(
    ("name", "sizes", "placement", "words", "hint"),
    [
        (
            "zbv",
            (2, 3),
            Placement.loop(2, 2),
            "rank 0: 3F0 stands on the wrong rank: the loop placement puts stage 3 on rank 1",
            "the stages stand on ranks 0 1 1 0, as the v placement has them; the loop placement has them on 0 1 0 1",
        ),
        (
            "interleaved",
            (2, 2),
            Placement.v(2),
            "rank 0: 2F0 stands on the wrong rank: the v placement puts stage 2 on rank 1",
            "the stages stand on ranks 0 1 0 1, as the loop placement has them; the v placement has them on 0 1 1 0",
        ),
        (
            "dualpipe",
            (2, 4),
            Placement(2, ((0, 1), (0, 1))),
            "rank 0: d1:1F2 stands on the wrong rank: the custom placement puts stage 1 on rank 1",
            "the stages of pipe 1 stand on ranks 1 0, as the mirrored placement has them; "
            "the custom placement has them on 0 1",
        ),
        (
            "interleaved",
            (9, 9),
            Placement(9, ((*range(9), 1, 0, *range(2, 9)),)),
            "rank 0: 9F0 stands on the wrong rank: the custom placement puts stage 9 on rank 1",
            "the stages stand on ranks 0 1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 ..., as the loop placement has them; "
            "the custom placement has them on 0 1 2 3 4 5 6 7 8 1 0 2 3 4 5 6 ...",
        ),
    ],
)
def test_the_placement_must_be_that_of_the_order(
    name: str, sizes: tuple[int, int], placement: Placement, words: str, hint: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        replace(build(name, *sizes), placement=placement).validate()
    assert caught.value.message == words
    assert caught.value.hint == hint


def test_a_stage_on_two_ranks_is_named() -> None:
    with pytest.raises(ScheduleError) as caught:
        of("0F0 0B0 1F0 | 1B0").validate()
    assert caught.value.hint == "a stage lives on one rank"
    with pytest.raises(ScheduleError) as caught:
        of("1F0 | 1B0").validate()
    assert caught.value.hint == "a stage lives on one rank"
    with pytest.raises(ScheduleError) as caught:
        of("1F0 1B0 |").validate()
    assert caught.value.hint == "the stages stand on ranks -1 0; the loop placement has them on 0 1"


@pytest.mark.parametrize("microbatches", [0, -3, MAX_MICROBATCH + 1])
def test_microbatches_out_of_range(microbatches: int) -> None:
    with pytest.raises(ScheduleError, match="microbatches"):
        Schedule.from_orders("test", Placement.loop(1), microbatches, [RankOrder()])


def test_one_list_a_rank() -> None:
    with pytest.raises(ScheduleError, match="1 lists of actions for 2 ranks"):
        Schedule.from_orders("test", Placement.loop(2), 1, [RankOrder()])


@given(sizes(), st.data())
def test_a_lost_action_is_noticed(size: Sizes, data: st.DataObject) -> None:
    schedule = size.build()
    lists = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    gone = lists[rank].pop(data.draw(st.integers(0, len(lists[rank]) - 1)))
    broken = Schedule.from_actions("broken", schedule.placement, schedule.microbatches, lists)
    assert not broken.same_order(schedule)
    with pytest.raises(ScheduleError, match=f"rank {rank}: .* is missing"):
        broken.validate()
    lists[rank].append(gone)
    lists[rank].append(gone)
    with pytest.raises(ScheduleError, match="stands 2 times"):
        Schedule.from_actions("broken", schedule.placement, schedule.microbatches, lists).validate()


def parts(of: str, *, start: str = "0") -> list[str]:
    return [f"{start}{of}@0.{part}" for part in ("attn", "dispatch", "mlp", "combine")]


FORWARD, BACKWARD = parts("F0"), parts("B0")[::-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            " ".join(FORWARD + BACKWARD[:-1]),
            "rank 0: the backward of layer 0, attn, of stage 0, microbatch 0 is missing",
        ),
        (" ".join([*FORWARD, *BACKWARD, "0W0@0.mlp"]), "0B0@0.mlp is a full backward, but an I or W"),
        (" ".join([*FORWARD, *parts("I0")[::-1], "0W0@0.mlp"]), "the W of layer 0, attn, of stage 0, microbatch 0"),
        (" ".join([*FORWARD[1:], *BACKWARD]), "the F of layer 0, attn"),
        (" ".join([*FORWARD, *BACKWARD, "0F1"]), "0F1 stands beside parts of layers"),
        (" ".join([*FORWARD, *BACKWARD, "(0F1@0.attn;0B1@0.attn)OVERLAP_F_B"]), "0F1@0.attn is part of a pair"),
        (" ".join([FORWARD[1], FORWARD[0], *FORWARD[2:], *BACKWARD]), "0F0@0.dispatch waits for 0F0@0.attn"),
    ],
)
def test_parts_that_are_wrong(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        of(text, microbatches=2 if "1" in text else 1).validate()
    assert message in error.value.message


def test_fences() -> None:
    order = RankOrder()
    for item in (*FORWARD, *BACKWARD):
        if item == BACKWARD[0]:
            order.fence()
        order.append(parse(item))
    schedule = Schedule.from_orders("fenced", Placement.loop(1), 1, [order]).validate()
    assert schedule.fences.tolist() == [False] * 4 + [True] + [False] * 3
    assert schedule.has_parts
    assert not schedule.same_order(replace(schedule, fence=None))
    whole = build("1f1b", 2, 2)
    assert whole.fence is None
    assert not whole.has_parts
    assert whole.same_order(replace(whole))


@given(
    st.lists(
        st.tuples(st.sampled_from("FBIW"), *(st.integers(-(2**17), 2**17) for _ in range(2)), st.integers(-200, 200))
    )
)
def test_fields_out_of_range_are_found_at_their_place(calls: list[tuple[str, int, int, int]]) -> None:
    order, good, strays = RankOrder(), [], 0
    for kind, stage, microbatch, pipe in calls:
        getattr(order, kind)(stage, microbatch * 16, pipe)
        try:
            good.append(Action(Kind[kind], stage, microbatch * 16, pipe))
        except ActionError:
            strays += 1
    if not strays:
        assert list(order.actions()) == good
        return
    with pytest.raises(ActionError, match=r"of its list: (stage|microbatch|pipe) -?[0-9]+ of a . is outside"):
        order.columns()
    with pytest.raises(ScheduleError, match=r"rank 1: entry [0-9]+ of its list"):
        Schedule.from_orders("x", Placement.loop(2), 4, [RankOrder(), order])


@given(actions())
def test_what_is_appended_is_what_was_called(action: Action) -> None:
    order = RankOrder()
    order.append(action)
    assert list(order.actions()) == [action]
    if action.kind in COMPUTE_KINDS and action.part is None:
        called = RankOrder()
        getattr(called, action.kind.name)(action.stage, action.microbatch, action.pipe)
        assert list(called.actions()) == [action]
