"""What contradicts itself in a trace is told; what real traces do is no contradiction."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from pipetrace.trace.load import load_trace
from pipetrace.trace.reading import doubts
from pipetrace.trace.reading.device import device_of
from pipetrace.trace.reading.doubts import _crosses, doubts_of
from pipetrace.trace.reading.nearly import is_damaged_one_of, is_nearly_a_label, is_nearly_one_of
from pipetrace.trace.torch_profiler import read_recording

TRACES = Path(__file__).parent.parent.parent / "data" / "traces"
Change = Callable[[list[dict[str, Any]]], None]


def named(events: list[dict[str, Any]], name: str, nth: int = 0) -> dict[str, Any]:
    return [e for e in events if e["name"].startswith(name)][nth]


def later(name: str, by: float, nth: int = 0, key: str = "ts") -> Change:
    def change(events: list[dict[str, Any]]) -> None:
        named(events, name, nth)[key] += by

    return change


def put(name: str, key: str, value: Any, nth: int = 0) -> Change:
    def change(events: list[dict[str, Any]]) -> None:
        named(events, name, nth)[key] = value

    return change


@pytest.mark.parametrize("folder", sorted(folder.name for folder in TRACES.iterdir()))
def test_real_traces_do_not_contradict_themselves(folder: str) -> None:
    for file in (TRACES / folder).glob("rank*.json.gz"):
        trace = load_trace(file)
        labels = trace.events.of_names([name.startswith("PP:") for name in trace.events.names])
        assert doubts_of(trace.events, device_of(trace.events), labels) == {}


def test_python_stands_in_a_block_of_its_own(tmp_path: Path) -> None:
    """torch writes `with_stack`'s functions behind the operations that they called."""
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(20):
            torch.ones(4).add(1)
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    events = load_trace(tmp_path / "rank0.json").events
    assert events.in_categories(["python_function"]).any()
    assert doubts_of(events, None, np.zeros(len(events), dtype=np.bool_)) == {}


@pytest.mark.parametrize(
    ("folder", "change", "message"),
    [
        ("zbv_pp2_mb4_mlp", later("PP:0F1", 1000), doubts.CROSSING),
        ("zbv_pp2_mb4_mlp", later("PP:0F1", 10_000, key="dur"), doubts.CROSSING),
        ("zbv_pp2_mb4_mlp", later("PP:0F1", -1000, key="dur"), doubts.CROSSING),
        ("zbv_pp2_mb4_mlp", later("PP:0F1", 9 * 10**6), doubts.DISORDER),
        ("zbv_pp2_mb4_mlp", put("gloo:recv", "name", "gloo:all_reduce"), doubts.POSTS),
        ("zbv_pp2_mb4_mlp", put("aten::mm", "cat", None), doubts.BARE),
        ("zbv_pp2_mb4_mlp", put("aten::mm", "tid", None), doubts.BARE),
        ("zbv_pp2_mb4_mlp", put("gloo:recv", "name", "glo:recv"), "'glo:recv'"),
        ("zbv_pp2_mb4_mlp", put("PP:0SEND_F1", "name", "PQ:0SEND_F1"), "'PQ:0SEND_F1'"),
        ("synthetic_gpu_1f1b_pp4_mb8", put("sm90", "cat", "kernal"), doubts.CATEGORY),
        ("synthetic_gpu_1f1b_pp4_mb8", put("sm90", "cat", "shader"), doubts.NO_KERNEL),
        ("synthetic_gpu_1f1b_pp4_mb8", later("sm90", 500, key="dur"), doubts.OVERLAP),
    ],
)
def test_what_contradicts_itself_is_told(folder: str, change: Change, message: str, tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((TRACES / folder / "rank0.json.gz").read_bytes()))
    change([e for e in trace["traceEvents"] if e["ph"] == "X"])
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    notes = read_recording([tmp_path]).notes
    assert any(message in note for note in notes), notes


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), max_size=12))
def test_crossing_is_seen_wherever_there_is_any(ranges: list[tuple[int, int]]) -> None:
    start = np.array([begin for begin, _ in ranges], dtype=np.int64)
    end = start + np.array([length for _, length in ranges], dtype=np.int64)
    long = [(s, e) for s, e in zip(start.tolist(), end.tolist(), strict=True) if s < e]
    crossing = any(a < c < b < d for a, b in long for c, d in long)
    assert bool(_crosses(start, end).any()) is crossing


@pytest.mark.parametrize(
    "name",
    [
        "Forwarf 3",
        "orward 3",
        "Backwardd 12",
        "gloo:recw",
        "c10d:send",
        "PP;0F3",
        "pP:1SEND_F0",
        "P:0I3",
        "0F3",
        "STEQ",
    ],
)
def test_names_that_are_nearly_labels(name: str) -> None:
    assert is_nearly_a_label(name)


@pytest.mark.parametrize(
    "name", ["Forward 3", "gloo:barrier", "aten::mm", "forward", "STEP", "", "x" * 100, "c10d::broadcast_", "ac2g", "3"]
)
def test_names_that_are_not(name: str) -> None:
    assert not is_nearly_a_label(name)


def test_one_letter() -> None:
    texts = ("rank", "rnk", "ranks", "rnak", "Rank", "wrld", "")
    assert [text for text in texts if is_nearly_one_of(text, ("rank", "world"))] == ["rnk", "ranks", "Rank", "wrld"]


def test_words_that_a_piece_of_damage_lies_in() -> None:
    words = ("cpu_op", "distributedInfo", "cuda_runtime")
    for text in ("cpu_o", "-Infinitycpu_op", "cpu\n}_op", "distributnfo", "distributedInfo2", "cuda_ntime"):
        assert is_damaged_one_of(text, words), text
    for text in (*words, "", "cpu_instant_event", "mtia_runtime", "xpu_runtime", "traceName", "op", "distributed"):
        assert not is_damaged_one_of(text, words), text
