"""What the names of ranges say."""

from __future__ import annotations

import pickle

import pytest

from pipetrace.action import Action, Kind, code_kind, code_microbatch, code_stage, code_text, parse
from pipetrace.errors import ActionError, TraceError
from pipetrace.trace.labels import (
    COUNTED,
    Labels,
    LabelStyle,
    Role,
    read_label,
    sender_of,
    step_number,
    transfer_of,
)


@pytest.mark.parametrize(
    ("name", "style", "role", "text"),
    [
        ("PP:0F3", LabelStyle.RUNTIME, Role.COMPUTE, "0F3"),
        ("PP:d1:2W6", LabelStyle.RUNTIME, Role.COMPUTE, "d1:2W6"),
        ("PP:(0F7;7B3)OVERLAP_F_B", LabelStyle.RUNTIME, Role.COMPUTE, "(0F7;7B3)OVERLAP_F_B"),
        ("PP:0SEND_F0", LabelStyle.RUNTIME, Role.POST, "0SEND_F0"),
        ("PP:7REDUCE_GRAD", LabelStyle.RUNTIME, Role.WHOLE_STAGE, "7REDUCE_GRAD"),
        ("POST:1RECV_F3", LabelStyle.PIPETRACE, Role.POST, "1RECV_F3"),
        ("WAIT:1RECV_F3", LabelStyle.PIPETRACE, Role.WAIT, "1RECV_F3"),
        ("Forward 3", LabelStyle.GPIPE, Role.COMPUTE, "5F3"),
        ("Backward 0", LabelStyle.GPIPE, Role.COMPUTE, "5B0"),
    ],
)
def test_labels(name: str, style: LabelStyle, role: Role, text: str) -> None:
    label = read_label(name, 5)
    assert label is not None
    assert (label.style, label.role, code_text(label.code, label.partner)) == (style, role, text)


@pytest.mark.parametrize("name", ["aten::mm", "Forward", "Forward 3x", "Forward 03", "pp:0F3", "PP", "STEP", ""])
def test_other_names_are_no_labels(name: str) -> None:
    assert read_label(name, 0) is None


@pytest.mark.parametrize("name", ["PP:", "PP:0F", "PP:0F3 ", "POST:0F3", "WAIT:0OPTIM", "PP:(0F1;0F2)OVERLAP_F_B"])
def test_labels_that_name_no_action(name: str) -> None:
    with pytest.raises(ActionError):
        read_label(name, 0)


def test_step_numbers() -> None:
    assert [step_number(name) for name in ("ProfilerStep#12", "ProfilerStep #3", "ProfilerStep", "STEP")] == [
        12,
        3,
        None,
        None,
    ]


def test_ends_of_a_transfer() -> None:
    def code(text: str) -> int:
        action = parse(text)
        assert isinstance(action, Action)
        return action.code

    assert code_text(sender_of(code("1RECV_F3"))) == "0SEND_F3"
    assert code_text(sender_of(code("d1:1RECV_B3"))) == "d1:2SEND_B3"
    assert code_text(transfer_of(code("1F3"), sends=True)) == "1SEND_F3"
    assert code_text(transfer_of(code("1B3"), sends=False)) == "1RECV_B3"
    assert Kind(code("1RECV_F3") & 31) is Kind.RECV_F


@pytest.mark.parametrize(
    ("pattern", "name", "text"),
    [
        (r"fwd mb(?P<microbatch>\d+) stage(?P<stage>\d+)", "fwd mb3 stage2", "2F3"),
        (r"(?P<kind>\w+)_mb(?P<microbatch>\d+)", "backward_mb7", "5B7"),
        (r"(?P<kind>\w+)/(?P<stage>\d+)/(?P<microbatch>\d+)", "wgrad/1/0", "1W0"),
        (r"(?P<kind>\w+)/(?P<stage>\d+)/(?P<microbatch>\d+)", "dgrad/1/0", "1I0"),
        (r"ForwardStep (?P<microbatch>\d+)", "ForwardStep 4", "5F4"),
        (r"bprop (?P<microbatch>\d+) d(?P<pipe>\d)", "bprop 4 d1", "d1:5B4"),
        (r"stage \d+ weight (?P<microbatch>\d+)", "stage 9 weight 4", "5W4"),
    ],
)
def test_patterns_of_ones_own(pattern: str, name: str, text: str) -> None:
    label = Labels([pattern]).read(name, 5)
    assert label is not None
    assert (label.style, label.role, code_text(label.code)) == (LabelStyle.PATTERN, Role.COMPUTE, text)
    assert Labels([pattern]).read(f"{name} and more", 5) is None


def test_what_a_pattern_leaves_open() -> None:
    label = Labels([r"forward_step"]).read("forward_step", 3)
    assert label is not None
    assert (code_kind(label.code), code_stage(label.code), code_microbatch(label.code)) == (Kind.F, 3, COUNTED)
    # What no pattern knows is read as ever.
    assert Labels([r"forward_step"]).read("PP:0F3", 0) == read_label("PP:0F3", 0)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("fwd (", "no regular expression"),
        (r"stage(?P<stage>\d+)", "does not say whether"),
        (r"fwd (?P<mb>\d+)", "a group called 'mb'"),
    ],
)
def test_patterns_that_are_none(pattern: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Labels([pattern])


def test_a_pattern_that_takes_forever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipetrace.trace.labels._MOST_SECONDS", 0.05)
    slow = r"fwd (\w|\w\w)+ mb(?P<microbatch>\d+)$"
    labels = Labels([slow])
    with pytest.raises(TraceError, match=r"takes seconds to tell whether it matches 'fwd a{30}") as caught:
        labels.read("fwd " + "a" * 90, 0)
    assert slow in caught.value.message
    assert "repeats" in caught.value.hint
    # Names that together take as long are no better than one; those that take none give the time back.
    for _ in range(3):
        with pytest.raises(TraceError):
            labels.read("fwd " + "a" * 90, 0)
    for name in range(100):
        assert labels.read(f"aten::{name}", 0) is None
    assert labels.read("fwd abc mb7", 0) is not None


def test_patterns_travel_to_other_processes() -> None:
    labels = pickle.loads(pickle.dumps(Labels([r"fwd mb(?P<microbatch>\d+)"])))
    assert labels.read("fwd mb7", 2) == Labels([r"fwd mb(?P<microbatch>\d+)"]).read("fwd mb7", 2)


@pytest.mark.parametrize("name", ["fwd 99999999999", "fwd ٣x"])
def test_matches_that_name_no_action(name: str) -> None:
    with pytest.raises(ActionError):
        Labels([r"fwd (?P<microbatch>.*)"]).read(name, 0)
