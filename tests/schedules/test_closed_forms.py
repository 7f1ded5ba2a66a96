"""What the papers say in formulas: makespans, bubbles, activations."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipetrace.action import Action, Pair
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.metrics import bubbles, peak_in_flight
from pipetrace.schedules import build
from pipetrace.simulate import simulate

RANKS, MICROBATCHES, CHUNKS = st.integers(2, 16), st.integers(1, 64), st.integers(1, 4)
TIMES = st.integers(1, 50)
UNIT = Costs(StageCosts(1, 1, 1))


def makespan(name: str, p: int, m: int, costs: Costs, **options: object) -> int:
    return simulate(build(name, p, m, **options), costs).makespan


def at_input_grad(name: str, p: int, m: int, **options: object) -> list[int]:
    return list(peak_in_flight(build(name, p, m, **options)).release_at_input_grad)


def at_weight_grad(name: str, p: int, m: int, **options: object) -> list[int]:
    return list(peak_in_flight(build(name, p, m, **options)).release_at_weight_grad)


@given(RANKS, MICROBATCHES, TIMES, TIMES)
def test_gpipe_and_1f1b(p: int, m: int, f: int, b: int) -> None:
    costs = Costs(StageCosts(f, b, 0))
    for name in ("gpipe", "1f1b"):
        assert makespan(name, p, m, costs) == (m + p - 1) * (f + b)
    idle = bubbles(simulate(build("1f1b", p, m), costs))
    assert idle.fraction == pytest.approx((p - 1) / (m + p - 1))
    assert at_input_grad("gpipe", p, m) == [m] * p
    assert at_input_grad("1f1b", p, m) == [min(p - r, m) for r in range(p)]


@given(RANKS, st.integers(1, 6), CHUNKS, TIMES, TIMES)
def test_interleaved(p: int, groups: int, v: int, f: int, b: int) -> None:
    m = groups * p
    assert makespan("interleaved", p, m, Costs(StageCosts(f, b, 0)), chunks=v) == (m * v + p - 1) * (f + b)
    assert makespan("looped-bfs", p, m, Costs(StageCosts(f, b, 0)), chunks=v) == (m * v + p - 1) * (f + b)
    assert at_input_grad("looped-bfs", p, m, chunks=v) == [m * v] * p


@given(RANKS, MICROBATCHES, CHUNKS)
def test_memory_of_interleaved(p: int, m: int, v: int) -> None:
    assume(m >= p)
    groups = [g for g in range(p, m + 1) if m % g == 0 or m % g >= p]
    for g in groups[:3]:
        expected = [min(m * v, 2 * (p - 1 - r) + (v - 1) * g + 1) for r in range(p)]
        assert at_input_grad("interleaved", p, m, chunks=v, group=g) == expected


@given(RANKS, st.integers(1, 6), st.integers(2, 4), TIMES, TIMES, TIMES)
def test_interleaved_zero_bubble(p: int, groups: int, v: int, f: int, i: int, w: int) -> None:
    m = groups * p
    assume(f == i == w)  # the formula's in-between steps hold where no W delays an I
    expected = m * v * (f + i + w) + (p - 1) * (f + i - w)
    assert makespan("interleaved-zb", p, m, Costs(StageCosts(f, i, w)), chunks=v) == expected


@given(RANKS, MICROBATCHES, TIMES)
def test_zb_h1(p: int, m: int, unit: int) -> None:
    assume(m > p)
    f = i = w = unit
    schedule = build("zb-h1", p, m)
    assert max(bubbles(simulate(schedule, Costs(StageCosts(f, i, w)))).in_span_idle) == (p - 1) * (f + i - w)
    assert at_weight_grad("zb-h1", p, m) == [p] * p
    assert at_input_grad("zb-h1", p, m) == [p - r for r in range(p)]


@given(st.integers(2, 12), st.integers(0, 30), TIMES)
def test_zb_h2(p: int, more: int, unit: int) -> None:
    m = 2 * p - 1 + more
    idle = bubbles(simulate(build("zb-h2", p, m), Costs(StageCosts(unit, unit, unit))))
    assert set(idle.in_span_idle) == {0}
    assert idle.makespan == m * 3 * unit + (p - 1) * unit
    assert at_weight_grad("zb-h2", p, m) == [2 * p - 1] * p
    assert at_input_grad("zb-h2", p, m) == [2 * (p - 1 - r) + 1 for r in range(p)]


@given(st.integers(2, 8), st.integers(0, 12), st.data())
def test_zb_h2_within_less_memory(p: int, more: int, data: st.DataObject) -> None:
    m, memory = 2 * p - 1 + more, data.draw(st.integers(p, 2 * p + 1))
    limited = build("zb-h2", p, m, memory=memory)
    assert at_weight_grad("zb-h2", p, m, memory=memory) == [min(memory, 2 * p - 1)] * p
    costs = Costs(StageCosts(10, 12, 8))
    between = simulate(limited, costs).makespan
    assert makespan("zb-h2", p, m, costs) <= between <= makespan("zb-h1", p, m, costs)
    assert build("zb-h2", p, m, memory=p).same_order(build("zb-h1", p, m))


@given(RANKS, st.integers(0, 30))
def test_zbv(p: int, more: int) -> None:
    m = 2 * p - 1 + more
    assert set(bubbles(simulate(build("zbv", p, m), UNIT)).in_span_idle) == {0}
    assert at_weight_grad("zbv", p, m) == [2 * p] * p


@given(st.integers(1, 8), st.integers(1, 4), st.data())
def test_chimera(half: int, units: int, data: st.DataObject) -> None:
    p = 2 * half
    pipes = data.draw(st.sampled_from([n for n in range(2, p + 1, 2) if p % n == 0]))
    schedule = build("chimera", p, units * p, pipes=pipes)
    idle = bubbles(simulate(schedule, Costs(StageCosts(1, 1, 0))))
    assert set(idle.global_idle) == {2 * p // pipes - 2}
    if units == 1 or pipes == 2:
        least = p - p // pipes + 1
        assert min(peak_in_flight(schedule).release_at_input_grad) >= least
        assert max(peak_in_flight(schedule).release_at_input_grad) <= p


def test_chimera_of_the_papers_figure() -> None:
    for (p, m), (even, double) in {(4, 4): (10, 16), (4, 8): (18, 30), (8, 8): (22, 36), (8, 16): (38, 66)}.items():
        assert makespan("chimera", p, m, Costs(StageCosts(1, 1, 0))) == even
        assert makespan("chimera", p, m, Costs(StageCosts(1, 1, 1))) == double


@given(st.integers(1, 8), st.integers(0, 12), TIMES, TIMES)
def test_dualpipe(half: int, more: int, f: int, w: int) -> None:
    """The README's bubble (PP/2 - 1)(F&B + B - 3W) holds where F = I and W <= F."""
    assume(w <= f)
    p, m = 2 * half, 4 * half + 2 * more
    b = f + w
    idle = bubbles(simulate(build("dualpipe", p, m), Costs(StageCosts(f, f, w))))
    assert set(idle.global_idle) == {(p // 2 - 1) * ((f + b) + b - 3 * w)}
    assert set(at_weight_grad("dualpipe", p, m)) == {p + 1}


@given(st.integers(1, 8), st.integers(0, 20))
def test_memory_of_dualpipev(p: int, more: int) -> None:
    assert set(at_weight_grad("dualpipev", p, 2 * p + more)) == {2 * p + 1}


@given(st.integers(2, 8), st.integers(1, 4), CHUNKS, st.integers(2, 6))
def test_moe_1f1b(p: int, groups: int, v: int, fb: int) -> None:
    """[(p-1) + (p(v-1)+1)](F+B) + (mv - p(v-1) - 1) F&B, with the group p."""
    m = groups * p
    f, b = 2, 4
    costs = Costs(StageCosts(f, 2, 2), pair=PairCost(fb, fb, fb))
    expected = ((p - 1) + (p * (v - 1) + 1)) * (f + b) + (m * v - p * (v - 1) - 1) * fb
    assume(fb >= max(f, b))
    assert makespan("moe-1f1b", p, m, costs, chunks=v, group=p) == expected


@given(st.integers(1, 8), st.integers(0, 20))
def test_dualpipe_is_dualpipev_unfolded(half: int, more: int) -> None:
    p, m = 2 * half, 2 * (2 * half + more)
    unfolded, folded = build("dualpipe", p, m), build("dualpipev", half, m // 2)

    for rank in range(half):
        folded_order = [_bare(item) for item in folded.actions(rank)]
        assert [_bare(item) for item in unfolded.actions(rank)] == folded_order
        assert [_bare(item) for item in unfolded.actions(p - 1 - rank)] == folded_order


def _bare(item: Action | Pair) -> str:
    """The kind of an action, both of a pair: what renumbering stages, pipes and microbatches keeps."""
    return f"{_bare(item.forward)}{_bare(item.backward)}" if isinstance(item, Pair) else item.kind.name
