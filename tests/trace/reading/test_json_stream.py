"""The events of a file, however they are laid out and however large it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.errors import TraceError
from pipetrace.trace.load import load_file, load_trace
from pipetrace.trace.reading import source

names = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
events_lists = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "X", "M", "s"]), "name": names, "ts": st.integers(0, 10**9)},
        optional={"cat": names, "dur": st.integers(0, 1000), "args": values, "id": values, "traceEvents": values},
    ),
    max_size=30,
)
LAYOUTS: list[dict[str, Any]] = [{}, {"indent": 1}, {"separators": (",", ":")}, {"indent": 0, "ensure_ascii": False}]


@given(events_lists, st.sampled_from(LAYOUTS), st.dictionaries(names, values, max_size=3), st.integers(1, 400))
@settings(max_examples=150)
def test_every_layout_gives_the_events(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    layout: dict[str, Any],
    more: dict[str, Any],
    piece: int,
) -> None:
    path = tmp_path_factory.mktemp("layout") / "rank0.json"
    reserved = ("traceEvents", "distributedInfo", "baseTimeNanoseconds", "host_name", "pipetrace", "metadata")
    more = {key: value for key, value in more.items() if key not in reserved}
    document = {**more, "traceEvents": events, "behind": more, "distributedInfo": {"rank": 3}}
    path.write_text(json.dumps(document, **layout), encoding="utf-8", errors="replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_PIECE", piece)  # so that every event is cut somewhere
        trace = load_trace(path)
    kept = [event for event in events if event["ph"] == "X"]
    assert [trace.events.names[name] for name in trace.events.name] == [event["name"] for event in kept]
    assert trace.events.start.tolist() == [event["ts"] * 1000 for event in kept]
    assert trace.distributed == {"rank": 3}
    endless = sum("dur" not in event for event in kept)
    assert len(trace.notes) == (endless > 0)


def line(name: str, ts: float = 1) -> str:
    return json.dumps({"ph": "X", "name": name, "ts": ts, "dur": 1, "args": {"a": [{"b": 1}, {"ph": "no"}]}})


def found(path: Path) -> tuple[list[str], str]:
    trace = load_trace(path)
    return [trace.events.names[name] for name in trace.events.name], " | ".join(trace.notes)


@pytest.mark.parametrize("indent", [None, 2])
def test_one_broken_event_of_many_costs_itself_and_is_told(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "rank0.json"
    lines = [json.dumps(json.loads(line(f"e{n}", n)), indent=indent) for n in range(200)]
    for broken, lost in (
        (lines[77].replace('"ts"', '"ts'), 1),
        (lines[77].replace("77", "7 7", 1).replace('"ts": 77', '"ts": 7 7'), 1),
        (lines[77][:-1], 1),
        (lines[77].replace("{", "x", 1), 1),
        (lines[77] + "}", 0),
        (lines[77].replace('"ph": "X"', '"ph"'), 1),
    ):
        document = ",\n".join([*lines[:77], broken, *lines[78:]])
        path.write_text('{"traceEvents": [' + document + "]}")
        names, notes = found(path)
        missing = [f"e{n}" for n in range(200) if f"e{n}" not in names]
        assert set(missing) <= {"e77", "e78"}, broken
        assert len(missing) >= lost
        assert "at byte" in notes or "overlooked" in notes, (broken, notes)


def test_commas_too_many_and_too_few(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": [' + line("a") + ",," + line("b") + line("c") + ",]}")
    names, notes = found(path)
    assert names == ["a", "b", "c"]
    assert "commas too many or too few were overlooked" in notes


def test_control_characters_backslashes_and_half_characters(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    texts = ["a\x01b", "C:\\\\dir\\x", "\\ud800", "ok"]
    path.write_text(
        '{"traceEvents": [' + ",".join(f'{{"ph": "X", "name": "{t}", "ts": 1, "dur": 1}}' for t in texts) + "]}"
    )
    names, notes = found(path)
    assert names == ["a b", "C:\\dir\\x", "\ufffd", "ok"]
    for words in ("1 control characters", "1 backslashes", "1 halves of a character"):
        assert words in notes
    # A line's end is none between values, where it may stand, but it is one in text.
    path.write_text(
        '{"traceEvents": [' + line("a#b").replace("#", "\n") + ",\n" + line("c#d").replace("#", "\r\n") + "\n]}"
    )
    names, notes = found(path)
    assert names == ["a b", "c  d"]
    assert "3 control characters" in notes


def test_a_file_that_ends_too_early_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    whole = '{"distributedInfo": {"rank": 0}, "traceEvents": [' + ",".join(line(f"e{n}") for n in range(50)) + "]}"
    for end in range(len(whole) - 1, 200, -97):
        path.write_text(whole[:end])
        trace = load_trace(path)
        assert trace.cut
        assert trace.distributed == {"rank": 0}
        assert "the JSON does not end: it was read up to byte" in trace.notes[-1]
        assert [trace.events.names[n] for n in trace.events.name] == [f"e{n}" for n in range(len(trace.events))]


def test_two_traces_in_one_file_are_both_read(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    one, two = (
        json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": [{"ph": "X", "name": f"r{rank}", "ts": 1}]})
        for rank in range(2)
    )
    path.write_text(one + "\n" + two + "junk")
    traces = load_file(path)
    assert [trace.distributed["rank"] for trace in traces] == [0, 1]
    assert [trace.events.names for trace in traces] == [("r0",), ("r1",)]
    assert any("4 bytes behind the end" in note for note in traces[1].notes)
    assert any("2 traces stand one after the other" in note for note in traces[1].notes)
    with pytest.raises(TraceError, match="holds 2 traces"):
        load_trace(path)


def test_arguments_that_are_no_object_cost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    odd: list[Any] = [3, [], "x", None, {}]
    odd = [{"ph": "X", "name": f"a{n}", "ts": 2**43 + 0.001, "args": args} for n, args in enumerate(odd)]
    path.write_text(json.dumps({"traceEvents": odd}))
    assert found(path)[0] == [f"a{n}" for n in range(5)]
