"""torch's own builders, asked live. Its 1F1B is left out: the order it reports is not the one it runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.channels import check_ordered_channels
from pipetrace.errors import ScheduleError
from pipetrace.schedules import build
from pipetrace.trace.torch_csv import parse_csv

pytest.importorskip("torch", reason="torch is not installed")

RANKS, MICROBATCHES = st.integers(1, 16), st.integers(1, 64)


def torch_order(schedule: str, ranks: int, microbatches: int, chunks: int | None = None) -> list[list[str]]:
    """Each rank's computation as text."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    lists: list[list[Any]] = get_schedule_ops(schedule, ranks, microbatches, chunks)
    texts = [[repr(action) for action in actions if action is not None] for actions in lists]
    return [[text for text in mine if "REDUCE_GRAD" not in text] for mine in texts]


def our_order(name: str, ranks: int, microbatches: int, **options: object) -> list[list[str]]:
    schedule = build(name, ranks, microbatches, **options)
    return [[str(action) for action in schedule.actions(rank)] for rank in range(ranks)]


@given(RANKS, MICROBATCHES)
@settings(max_examples=40)
def test_gpipe(p: int, m: int) -> None:
    assert our_order("gpipe", p, m) == torch_order("GPipe", p, m)


@given(RANKS, MICROBATCHES, st.integers(2, 4))
@settings(max_examples=40)
def test_looped_bfs(p: int, m: int, v: int) -> None:
    assert our_order("looped-bfs", p, m, chunks=v) == torch_order("LoopedBFS", p, m, v)


@pytest.mark.parametrize(
    ("name", "theirs"), [("interleaved", "Interleaved1F1B"), ("interleaved-zb", "InterleavedZeroBubble")]
)
@given(p=RANKS, rounds=st.integers(1, 8), m=MICROBATCHES, v=st.integers(2, 4))
@settings(max_examples=60)
def test_interleaved(name: str, theirs: str, p: int, rounds: int, m: int, v: int) -> None:
    """torch's group is m // max(1, m // p), and it takes only m that this divides into whole groups."""
    if m >= p:
        rounds = max(1, m // p)
        m -= m % rounds
        rounds = max(1, m // p)
    else:
        rounds = 1
    if m % rounds == 0:
        assert our_order(name, p, m, chunks=v) == torch_order(theirs, p, m, v)


@given(RANKS, MICROBATCHES)
@settings(max_examples=40)
def test_zbv(p: int, m: int) -> None:
    assert our_order("zbv", p, m) == torch_order("ZBVZeroBubble", p, m)


@given(RANKS, st.integers(0, 40))
@settings(max_examples=40)
def test_dualpipev(p: int, more: int) -> None:
    m = 2 * p + more
    assert our_order("dualpipev", p, m) == torch_order("DualPipeV", p, m)


def torch_compute_comms(schedule: str, ranks: int, microbatches: int, chunks: int, *, defer: bool = False) -> str:
    """The CSV of torch's own lowering."""
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    lists: list[list[Any]] = get_schedule_ops(
        schedule, ranks, microbatches, chunks, with_comms=True, defer_pp_recv=defer
    )
    return "".join(",".join(repr(action) for action in actions) + "\n" for actions in lists)


@pytest.mark.parametrize(
    ("name", "theirs", "chunks"),
    [
        ("interleaved", "Interleaved1F1B", 2),
        ("interleaved", "Interleaved1F1B", 4),
        ("interleaved-zb", "InterleavedZeroBubble", 3),
        ("looped-bfs", "LoopedBFS", 2),
        ("zbv", "ZBVZeroBubble", 2),
        ("dualpipev", "DualPipeV", 2),
    ],
)
@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 4), (4, 8), (5, 10)])
def test_reads_the_communication_that_torch_derives(name: str, theirs: str, chunks: int, p: int, m: int) -> None:
    options = {} if name in ("zbv", "dualpipev") else {"chunks": chunks}
    ours = build(name, p, m, **options)
    read = parse_csv(torch_compute_comms(theirs, p, m, chunks), name).schedule
    assert read.compute_only().same_order(ours)
    assert read.has_communication == (p > 1)
    if p > 1:
        assert read.placement == ours.placement
    check_ordered_channels(read)


def test_refuses_what_torch_gets_wrong() -> None:
    """With deferred receives torch receives in another order than it sends, and without tags takes one for another."""
    deferred = torch_compute_comms("ZBVZeroBubble", 4, 8, 2, defer=True)
    with pytest.raises(ScheduleError) as caught:
        parse_csv(deferred, "zbv")
    assert caught.value.message == (
        "CSV: rank 1: 6RECV_B0 stands before 1RECV_F6, but rank 0 has 0SEND_F6 before 7SEND_B0"
    )
