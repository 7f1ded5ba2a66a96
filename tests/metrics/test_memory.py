from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Action, Kind, Part, parse
from pipetrace.costs import Costs, StageCosts
from pipetrace.metrics import ALL_FREED_AT, MemorySizes, StageSizes, memory_over_time, peak_in_flight
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from pipetrace.timeline import Lane, Tile, Timeline
from tests.metrics.test_sizes import stage_sizes
from tests.strategies import Sizes, costs, sizes, within

UNIT = Costs(StageCosts(1, 1, 1))


def tile(text: str, start: int, end: int, rank: int = 0) -> Tile:
    return Tile(parse(text), rank, Lane.COMPUTE, start, end)


def curve(tiles: list[Tile], sizes: MemorySizes) -> list[tuple[int, int]]:
    series = memory_over_time(Timeline.from_tiles(1, tiles), sizes).series[0]
    return list(zip(series.time.tolist(), series.value.tolist(), strict=True))


def bytes_of(**sizes: int) -> MemorySizes:
    return MemorySizes(StageSizes(**sizes), unit="bytes")


ALL = bytes_of(activation_freed_at_input=100, activation_freed_at_weight=20, gradient=7, parameters=1000)


@given(sizes(), costs(16))
def test_at_the_extremes_the_peaks_are_those_of_the_order(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline, peak = simulate(schedule, given), peak_in_flight(schedule)
    for release, expected in (
        (Kind.I, peak.release_at_input_grad),
        (Kind.W, peak.release_at_weight_grad),
    ):
        held = memory_over_time(timeline, ALL_FREED_AT[release])
        assert held.peak == expected
        for series, most, mean in zip(held.series, expected, held.mean, strict=True):
            assert series.value[-1] == 0
            assert series.value.min() >= 0
            assert series.value.max() <= most
            assert (np.diff(series.time) > 0).all()
            assert 0 <= mean <= most + 1e-9


@given(
    sizes(ranks=4, microbatches=8), costs(16), stage_sizes, st.dictionaries(st.integers(0, 8), stage_sizes, max_size=3)
)
def test_it_is_additive_and_ends_with_the_parameters(
    size: Sizes, given: Costs, default: StageSizes, stages: dict[int, StageSizes]
) -> None:
    schedule = size.build()
    given = within(given, schedule)
    timeline = simulate(schedule, given)
    whole = memory_over_time(timeline, MemorySizes(default, stages, "bytes"))
    names = ("activation_freed_at_input", "activation_freed_at_weight", "gradient", "parameters")

    def only(of: StageSizes, name: str) -> StageSizes:
        return StageSizes(**{name: getattr(of, name)})

    parts = [
        memory_over_time(timeline, MemorySizes(only(default, name), {s: only(of, name) for s, of in stages.items()}))
        for name in names
    ]
    assert whole.parameters == parts[-1].parameters
    for rank in range(timeline.ranks):
        assert whole.mean[rank] == pytest.approx(sum(part.mean[rank] for part in parts))
        assert whole.series[rank].value[-1] == whole.parameters[rank]
        assert whole.series[rank].time[0] == timeline.span[0]
        assert whole.peak[rank] <= sum(part.peak[rank] for part in parts)


def test_what_each_kind_takes_and_frees() -> None:
    tiles = [tile("0F0", 0, 10), tile("0I0", 20, 30), tile("0W0", 40, 50)]
    assert curve(tiles, ALL) == [(0, 1120), (20, 1127), (30, 1027), (50, 1000)]
    # A full backward is I, then W, at once.
    assert curve([tile("0F0", 0, 10), tile("0B0", 20, 50)], ALL) == [(0, 1120), (20, 1127), (50, 1000)]


def test_a_pair_holds_both_while_it_runs() -> None:
    tiles = [tile("0F0", 0, 2), tile("(0F1;0B0)OVERLAP_F_B", 2, 6), tile("0B1", 6, 9)]
    assert curve(tiles, ALL) == [(0, 1120), (2, 1247), (6, 1127), (9, 1000)]
    assert memory_over_time(Timeline.from_tiles(1, tiles), ALL).peak == (1247,)


def test_the_first_part_takes_and_the_last_frees() -> None:
    def part(kind: Kind, part: Part, lane: Lane, start: int, end: int) -> Tile:
        return Tile(Action(kind, 0, 0, layer=0, part=part), 0, lane, start, end)

    tiles = [
        part(Kind.F, Part.ATTN, Lane.COMPUTE, 0, 2),
        part(Kind.F, Part.DISPATCH, Lane.ALL_TO_ALL, 2, 4),
        part(Kind.F, Part.MLP, Lane.COMPUTE, 4, 6),
        part(Kind.F, Part.COMBINE, Lane.ALL_TO_ALL, 6, 8),
        part(Kind.I, Part.COMBINE, Lane.ALL_TO_ALL, 10, 12),
        part(Kind.I, Part.MLP, Lane.COMPUTE, 12, 14),
        part(Kind.W, Part.MLP, Lane.COMPUTE, 14, 16),
        part(Kind.I, Part.DISPATCH, Lane.ALL_TO_ALL, 14, 18),
        part(Kind.I, Part.ATTN, Lane.COMPUTE, 18, 20),
        part(Kind.W, Part.ATTN, Lane.COMPUTE, 20, 25),
    ]
    assert curve(tiles, ALL) == [(0, 1120), (10, 1127), (20, 1027), (25, 1000)]


def test_a_tile_without_length_counts_in_the_peak() -> None:
    """What the order holds it holds for no time: the curve has no trace of it."""
    held = memory_over_time(
        Timeline.from_tiles(1, [tile("0F0", 0, 0), tile("0I0", 0, 0), tile("0W0", 0, 5)]), ALL_FREED_AT[Kind.I]
    )
    assert held.peak == (1,)
    assert held.series[0].value.tolist() == [0]
    pair = [tile("0F0", 0, 5), tile("(0F1;0B0)OVERLAP_F_B", 5, 5), tile("0B1", 5, 9)]
    assert memory_over_time(Timeline.from_tiles(1, pair)).peak == (2,)


def test_what_is_freed_and_taken_at_one_instant_is_no_dip() -> None:
    tiles = [tile("0F0", 0, 1), tile("0B0", 1, 3), tile("0F1", 3, 4), tile("0B1", 4, 6)]
    assert curve(tiles, MemorySizes()) == [(0, 1), (6, 0)]


def test_recordings_that_begin_or_end_in_the_middle() -> None:
    assert curve([tile("0B0", 5, 9)], ALL) == [(5, 1000)]
    assert curve([tile("0I0", 5, 6), tile("0W0", 7, 9)], ALL) == [(5, 1000)]
    assert curve([tile("0F0", 5, 9)], ALL) == [(5, 1120)]
    assert curve([tile("0F0", 5, 9), tile("0I0", 10, 11)], ALL) == [(5, 1120), (10, 1127), (11, 1027)]
    # Where a stage has no input to make a gradient for, W is the whole backward.
    assert curve([tile("0F0", 5, 9), tile("0W0", 10, 11)], ALL) == [(5, 1120), (11, 1000)]
    # Clocks that run apart: freed no earlier than taken.
    assert curve([tile("0F0", 5, 9), tile("0B0", 1, 3)], ALL) == [(1, 1000)]


def test_nothing_holds_nothing() -> None:
    held = memory_over_time(Timeline.from_tiles(2, []), ALL)
    assert (held.peak, held.parameters, held.mean) == ((0, 0), (0, 0), (0.0, 0.0))


def test_each_pipe_has_its_own_parameters() -> None:
    by_stage = MemorySizes(StageSizes(), {s: StageSizes(parameters=10**s) for s in range(8)}, "bytes")
    mirrored = memory_over_time(simulate(build("chimera", 4, 4)), by_stage)
    assert mirrored.parameters == (1001, 110, 110, 1001)
    assert memory_over_time(simulate(build("zbv", 4, 8)), by_stage).parameters == (
        10_000_001,
        1_000_010,
        100_100,
        11_000,
    )
    # Pipes that put one stage on one rank hold it twice.
    assert memory_over_time(simulate(build("dualpipe", 2, 4)), bytes_of(parameters=5)).parameters == (10, 10)
    assert memory_over_time(simulate(build("1f1b", 3, 4)), bytes_of(parameters=5)).parameters == (5, 5, 5)


def test_each_replica_by_itself() -> None:
    one = simulate(build("1f1b", 2, 3), UNIT)
    columns = {name: getattr(one, name) for name in ("rank", "lane", "code", "partner", "start", "end")}
    twice = {name: np.concatenate([column, column]) for name, column in columns.items()}
    twice["replica"] = np.repeat([0, 1], len(one))
    twice["start"][len(one) :] += 100
    twice["end"][len(one) :] += 100
    both = Timeline.from_columns(2, twice, replicas=2)
    held = memory_over_time(both, ALL, replica=1)
    assert held.span == (100, 100 + one.makespan)
    assert held.peak == memory_over_time(one, ALL).peak
    assert held.mean == memory_over_time(one, ALL).mean


def test_a_mean_is_what_a_slow_sum_gives() -> None:
    timeline = simulate(build("zb-h2", 3, 6), Costs(StageCosts(3, 5, 2)))
    held = memory_over_time(timeline, ALL)
    for rank in range(3):
        area = sum(
            (120 * (min(_end(timeline, s, m, Kind.I), t + 1) > t >= _start(timeline, s, m, Kind.F)))
            + 20 * (_end(timeline, s, m, Kind.W) > t >= _end(timeline, s, m, Kind.I))
            + 7 * (_end(timeline, s, m, Kind.W) > t >= _start(timeline, s, m, Kind.I))
            for s in [rank]
            for m in range(6)
            for t in range(timeline.makespan)
        )
        assert held.mean[rank] == pytest.approx(1000 + area / timeline.makespan)


def _start(timeline: Timeline, stage: int, microbatch: int, kind: Kind) -> int:
    found = timeline.find(Action(kind, stage, microbatch))
    assert found is not None
    return found.start


def _end(timeline: Timeline, stage: int, microbatch: int, kind: Kind) -> int:
    found = timeline.find(Action(kind, stage, microbatch))
    assert found is not None
    return found.end


# How the schedules differ at a glance: tall, sloped, flat.

RANKS, MICROBATCHES = st.integers(2, 12), st.integers(1, 40)


def peaks(name: str, p: int, m: int, release: Kind) -> list[int]:
    return list(memory_over_time(simulate(build(name, p, m), UNIT), ALL_FREED_AT[release]).peak)


@given(RANKS, MICROBATCHES)
def test_gpipe_peaks_at_every_microbatch_on_every_rank(p: int, m: int) -> None:
    assert peaks("gpipe", p, m, Kind.W) == [m] * p
    assert peaks("looped-bfs", p, max(p, m), Kind.W) == [2 * max(p, m)] * p


@given(RANKS, MICROBATCHES)
def test_1f1b_slopes_down_the_ranks(p: int, m: int) -> None:
    assert peaks("1f1b", p, m, Kind.W) == [min(p - rank, m) for rank in range(p)]
    if m > p:
        assert peaks("zb-h1", p, m, Kind.I) == [p - rank for rank in range(p)]
        assert peaks("zb-h1", p, m, Kind.W) == [p] * p


@given(RANKS, st.integers(0, 10))
def test_v_placements_are_flat(p: int, more: int) -> None:
    assert peaks("zbv", p, 2 * p - 1 + more, Kind.W) == [2 * p] * p
    assert peaks("dualpipev", p, 2 * p + more, Kind.W) == [2 * p + 1] * p


@given(st.integers(1, 6), st.integers(0, 6))
def test_bidirectional_schedules_are_flat(half: int, more: int) -> None:
    p = 2 * half
    assert peaks("dualpipe", p, 2 * p + 2 * more, Kind.W) == [p + 1] * p
    chimera = peaks("chimera", p, p, Kind.W)
    assert (min(chimera), max(chimera)) == (half + 1, p)
    assert chimera == chimera[::-1]
    # The mean is flatter still: what a rank lacks at its peak it holds for longer.
    mean = memory_over_time(simulate(build("dualpipe", p, 2 * p + 2 * more), UNIT)).mean
    assert max(mean) < 1.25 * min(mean)


def test_two_pipes_shave_the_slope_of_1f1b() -> None:
    p, m = 8, 16
    sloped, flat = peaks("1f1b", p, m, Kind.W), peaks("chimera", p, m, Kind.W)
    assert max(sloped) - min(sloped) == p - 1
    assert max(flat) - min(flat) <= p // 2 - 1
    assert max(peaks("gpipe", p, m, Kind.W)) == 2 * max(sloped)
