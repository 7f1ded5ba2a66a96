"""Protobuf as we frame it is read back by protobuf's own library."""

from __future__ import annotations

import importlib
from typing import Any, cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.trace.cells import Literal, joined
from pipetrace.trace.protobuf import data, doubles, fixed64s, messages, number, numbers, utf8, varint

trace_pb2 = cast("Any", importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2"))


@given(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
@settings(deadline=None)
def test_single_messages(whole: int, text: str, raw: bytes) -> None:
    read = trace_pb2.DebugAnnotation.FromString(number(4, whole) + data(10, text))
    assert (read.int_value, read.name) == (whole, utf8(text).decode())
    assert trace_pb2.DebugAnnotation.FromString(data(14, raw)).proto_value == raw


def test_lone_surrogates_are_replaced() -> None:
    assert utf8("a\ud800b \udc00\ud83d").decode() == "a\ufffdb \ufffd\ufffd"
    assert utf8("\ud83d\ude00").decode() == "\U0001f600"


def test_varint_of_each_size() -> None:
    assert [len(varint(1 << 7 * i)) for i in range(10)] == list(range(1, 11))
    assert varint(-1) == b"\xff" * 9 + b"\x01"


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63 - 1), st.booleans()), max_size=20))
@settings(deadline=None)
def test_columns_of_messages(drawn: list[tuple[int, int, bool]]) -> None:
    rows = len(drawn)
    value, flow = (np.array([row[i] for row in drawn], dtype=np.int64) for i in (0, 1))
    present = np.array([row[2] for row in drawn], dtype=np.bool_)
    event = [
        *numbers(30, value),
        *fixed64s(47, flow, present),
        *messages(23, [Literal(b"name", present)], rows, present),
        *messages(4, [Literal(number(1, 300))], rows),
    ]
    read = trace_pb2.Trace.FromString(b"".join(joined(messages(1, messages(11, event, rows), rows), rows)))
    events = [packet.track_event for packet in read.packet]
    assert [event.counter_value for event in events] == value.tolist()
    assert [list(event.flow_ids) for event in events] == [[f] if there else [] for _, f, there in drawn]
    assert [event.HasField("name") for event in events] == present.tolist()
    assert all(event.debug_annotations[0].name_iid == 300 for event in events)


@given(st.lists(st.floats(allow_nan=False)))
@settings(deadline=None)
def test_a_column_of_floats(drawn: list[float]) -> None:
    value = np.array(drawn, dtype=np.float64)
    events = messages(11, doubles(44, value), value.size)
    read = trace_pb2.Trace.FromString(b"".join(joined(messages(1, events, value.size), value.size)))
    assert [packet.track_event.double_counter_value for packet in read.packet] == drawn
