from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pipetrace.action import (
    MAX_MICROBATCH,
    NO_ACTION,
    Action,
    Kind,
    Pair,
    Part,
    code_kind,
    code_layer,
    code_microbatch,
    code_part,
    code_pipe,
    code_stage,
    code_text,
    pack,
    parse,
    parse_action,
    with_kind,
)
from pipetrace.errors import ActionError
from tests.strategies import actions, pairs


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("0F3", Action(Kind.F, 0, 3)),
        ("3I1", Action(Kind.I, 3, 1)),
        ("12B105", Action(Kind.B, 12, 105)),
        ("d1:2W6", Action(Kind.W, 2, 6, pipe=1)),
        ("4F0@2.dispatch", Action(Kind.F, 4, 0, layer=2, part=Part.DISPATCH)),
        ("1RECV_F3", Action(Kind.RECV_F, 1, 3)),
        ("7SEND_B0", Action(Kind.SEND_B, 7, 0)),
        ("0UNSHARD", Action(Kind.UNSHARD, 0)),
        ("5REDUCE_GRAD", Action(Kind.REDUCE_GRAD, 5)),
        ("d3:5OPTIM", Action(Kind.OPTIM, 5, pipe=3)),
    ],
)
def test_text_of_every_form(text: str, action: Action) -> None:
    assert parse_action(text) == action
    assert str(action) == text


def test_pipe_0_is_accepted_and_not_printed() -> None:
    assert str(parse_action("d0:0F3")) == "0F3"


@given(actions())
def test_text_round_trips(action: Action) -> None:
    assert parse(str(action)) == action


@given(pairs())
def test_pair_round_trips(pair: Pair) -> None:
    assert parse(str(pair)) == pair
    assert code_text(pair.forward.code, pair.backward.code) == str(pair)


@given(actions())
def test_code_round_trips(action: Action) -> None:
    assert NO_ACTION < action.code < 2**60
    assert Action.from_code(action.code) == action
    assert code_text(action.code) == str(action)


@given(actions(), actions())
def test_codes_differ_where_actions_do(a: Action, b: Action) -> None:
    assert (a.code == b.code) == (a == b)


@given(actions())
def test_fields_of_a_code(action: Action) -> None:
    fields = (
        (code_kind, action.kind),
        (code_stage, action.stage),
        (code_pipe, action.pipe),
        (code_microbatch, -1 if action.microbatch is None else action.microbatch),
        (code_layer, -1 if action.layer is None else action.layer),
        (code_part, action.part or 0),
    )
    for read, value in fields:
        assert read(action.code) == value
        assert read(np.array([action.code])).tolist() == [value]


def test_pack_is_the_code_of_a_plain_action() -> None:
    assert pack(Kind.W, 5, 9, 1) == Action(Kind.W, 5, 9, pipe=1).code
    assert with_kind(pack(Kind.F, 5, 9, 1), Kind.SEND_F) == Action(Kind.SEND_F, 5, 9, pipe=1).code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "F3",
        "0F",
        "0f3",
        "0F3 ",
        " 0F3",
        "0F3x",
        "0F03",
        "00F3",
        "0F-1",
        "+0F1",
        "0X3",
        "d1:",
        "d:0F3",
        "d01:0F3",
        "0F3@1",
        "0F3@1.foo",
        "0F3@.attn",
        "0F3@1.ATTN",
        "0UNSHARD3",
        "0SEND_F",
        "0SEND_F3@0.attn",
        "0W3@0.dispatch",
        "0F٣",
        "0F3\n",
        "(0F3;3B1)",
        "(0F3;3B1)OVERLAP_F_B ",
        "(3B1;0F3)OVERLAP_F_B",
        "(0F3;3W1)OVERLAP_F_B",
        "(0F3)OVERLAP_F_B",
        "((0F3;3B1)OVERLAP_F_B;3B1)OVERLAP_F_B",
        f"0F{MAX_MICROBATCH + 1}",
        "65536F0",
        "d64:0F0",
        "0F9999999999999999999999",
    ],
)
def test_what_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ActionError):
        parse(text)


def test_error_of_a_long_text_is_short() -> None:
    with pytest.raises(ActionError) as error:
        parse("x" * 100_000)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("code", [0, 13, 31, 2**62, -1, 2**60 | Action(Kind.F, 0, 0).code, int(Kind.F) | 7 << 5])
def test_code_of_no_action_is_refused(code: int) -> None:
    with pytest.raises(ActionError):
        Action.from_code(code)


def test_a_kind_or_part_by_its_value() -> None:
    one = Action(3, 4, 0, layer=2, part=1)  # type: ignore[arg-type]
    assert one == Action(Kind.I, 4, 0, layer=2, part=Part.ATTN)
    assert one.kind is Kind.I
    assert one.part is Part.ATTN


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("F", 0, 0), "'F' is no kind"),
        ((99, 0, 0), "99 is no kind"),
        ((True, 0, 0), "True is no kind"),
        ((Kind.F, 0, 0, 0, 0, "attn"), "'attn' is no part"),
        ((Kind.F, "0", 0), "stage '0' of a F is no whole number"),
        ((Kind.F, 1.0, 0), "stage 1.0 of a F"),
        ((Kind.F, 0, 2.5), "microbatch 2.5 of a F"),
        ((Kind.F, None, 0), "stage None of a F"),
        ((Kind.F, 0, 0, None), "pipe None of a F"),
        ((Kind.F, 10**5000, 0), "outside"),
    ],
)
def test_fields_of_a_wrong_type(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ActionError, match=says):
        Action(*given)


def test_a_pair_of_no_actions() -> None:
    with pytest.raises(ActionError, match="a pair of"):
        Pair("0F0", "0B0")  # type: ignore[arg-type]
