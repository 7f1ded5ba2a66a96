"""Interleaved 1F1B, also called VPP (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM", arXiv:2104.04473).

A rank holds v chunks, stage s lies on rank s mod p, and the microbatches go through in groups: a group's forwards run
through all chunks of a rank, then the next group's do. The bubble is that of 1F1B divided by v.
"""

from __future__ import annotations

from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules.spec import ScheduleSpec, require


def build(ranks: int, microbatches: int, *, chunks: int = 2, group: int | None = None) -> Schedule:
    """Interleaved 1F1B.

    Args:
        ranks: p.
        microbatches: m.
        chunks: v, stages a rank.
        group: Microbatches that go through a chunk before the next chunk begins (Megatron's microbatch group size a
            virtual stage): in p ... m, and m mod group is 0 or at least p. The least such when None.
    """
    p, m, v = ranks, microbatches, chunks
    group = group_size("interleaved", p, m, group)
    forwards, backwards = virtual_order(m, v, group)
    total = m * v
    orders = []
    for rank in range(p):
        order = RankOrder()
        ahead = min(warmup(p, v, group, rank), total)
        # Warm-up: the first chunks of the first group, and two for each rank behind, there and back.
        for chunk, i in forwards[:ahead]:
            order.F(chunk * p + rank, i)
        # Steady: one forward, one backward.
        for (chunk, i), (back_chunk, j) in zip(forwards[ahead:], backwards, strict=False):
            order.F(chunk * p + rank, i)
            order.B(back_chunk * p + rank, j)
        # Drain: the backwards that are left.
        for chunk, i in backwards[total - ahead :]:
            order.B(chunk * p + rank, i)
        orders.append(order)
    return Schedule.from_orders("interleaved", Placement.loop(p, v), m, orders)


def warmup(p: int, v: int, group: int, rank: int) -> int:
    """Forwards before a rank's first backward, where there are as many."""
    return (v - 1) * group + 2 * (p - 1 - rank)


def virtual_order(m: int, v: int, group: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(chunk of the rank, microbatch) of all forwards and of all backwards, in the order that every rank follows."""
    require(v >= 1, f"{v} chunks a rank", "give at least 1 (-v)")
    forwards, backwards = [], []
    for begin in range(0, m, group):
        microbatches = range(begin, min(begin + group, m))
        forwards += [(chunk, i) for chunk in range(v) for i in microbatches]
        backwards += [(chunk, i) for chunk in reversed(range(v)) for i in microbatches]
    return forwards, backwards


def group_size(name: str, p: int, m: int, group: int | None) -> int:
    """The group to use: the one asked for, or the least that Megatron's rule allows; all m where m < p.

    Raises:
        ScheduleError: The one asked for breaks the rule.
    """

    def fits(g: int) -> bool:
        return m % g == 0 or m % g >= p

    if group is None:
        return next((g for g in range(p, m + 1) if fits(g)), m)
    require(
        p <= group <= m and fits(group),
        f"{name} with a group of {group} microbatches, {p} ranks and {m} microbatches",
        "the group lies in p ... m, and the microbatches divided by it leave nothing or at least p over"
        if m >= p
        else "groups need at least as many microbatches as ranks: give more, or leave the group out",
    )
    return group


SPEC = ScheduleSpec(
    "interleaved",
    build,
    "loop",
    "any p, m, v",
    "Megatron-LM: Narayanan et al. 2021, arXiv:2104.04473",
    ("chunks", "group"),
)
