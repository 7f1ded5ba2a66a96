from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.execute.workloads.moe_layers import (
    Attention,
    Expert,
    capacity_of,
    combined,
    combined_gradient,
    route,
    run_experts,
)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.none() | st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_choices_are_sorted_by_expert_and_the_later_ones_dropped(chosen: list[int], capacity: int | None) -> None:
    of = route(torch.tensor(chosen), 5, capacity)
    starts = [sum(of.counts[:expert]) for expert in range(5)]
    kept: dict[int, list[int]] = {}
    assert sorted(of.choice.tolist()) == list(range(len(chosen)))
    used = [place for place in of.place.tolist() if place != of.rows]
    assert len(set(used)) == len(used)
    for choice, place in zip(of.choice.tolist(), of.place.tolist(), strict=True):
        expert = chosen[choice]
        if place == of.rows:
            continue  # dropped
        assert starts[expert] <= place < starts[expert] + of.counts[expert]
        kept.setdefault(expert, []).append(choice)
    for expert in range(5):
        wanted = [choice for choice, its in enumerate(chosen) if its == expert]
        assert kept.get(expert, []) == (wanted if capacity is None else wanted[:capacity])
        assert of.counts[expert] == (len(wanted) if capacity is None else capacity)


def test_capacity_is_a_factor_of_the_even_share() -> None:
    assert capacity_of(0.0, 64, 2, 8) is None
    assert capacity_of(1.0, 64, 2, 8) == 16
    assert capacity_of(1.01, 64, 2, 8) == 17


def test_attention_gives_each_expert_its_tokens_with_their_gates() -> None:
    torch.manual_seed(0)
    for capacity in (0.0, 0.5, 4.0):
        layer = Attention(8, 2, experts=4, top_k=2, capacity=capacity)
        h, rows, of = layer(torch.randn(3, 5, 8))
        tokens = layer.norm2(h).flatten(0, 1)
        gates = layer.router(tokens).softmax(-1)
        assert rows.shape == (of.rows, 9)
        starts = torch.tensor([sum(of.counts[:expert]) for expert in range(4)])
        used = set()
        for choice, place in zip(of.choice.tolist(), of.place.tolist(), strict=True):
            if place == of.rows:
                continue  # dropped
            token, expert = choice // 2, int((starts <= place).sum()) - 1
            assert torch.equal(rows[place, :-1], tokens[token])
            assert torch.isclose(rows[place, -1], gates[token, expert])
            assert expert in gates[token].topk(2).indices
            used.add(place)
        for place in set(range(of.rows)) - used:
            assert not rows[place].any()


def test_experts_run_on_their_rows_in_whatever_order_these_came() -> None:
    torch.manual_seed(0)
    experts = [Expert(8, 6), Expert(8, 6)]
    counts = [(2, 1), (0, 3)]
    rows = torch.randn(6, 9)
    outputs = run_experts(experts, rows, counts)
    for row, expert in enumerate([0, 0, 1, 1, 1, 1]):
        assert torch.allclose(outputs[row], experts[expert](rows[row : row + 1])[0], atol=1e-6)
    assert torch.allclose(
        experts[0](rows)[2],
        experts[0].down(torch.nn.functional.gelu(experts[0].up(rows[2, :-1]))) * rows[2, -1],
        atol=1e-6,
    )


@given(st.integers(1, 3), st.sampled_from([None, 1, 3]))
@settings(max_examples=20, deadline=None)
def test_the_gradient_of_a_combine_is_autograds(top_k: int, capacity: int | None) -> None:
    torch.manual_seed(top_k)
    h = torch.randn(2, 4, 5, requires_grad=True)
    of = route(torch.randint(4, (8 * top_k,)), 4, capacity)
    returned = torch.randn(of.rows, 5, requires_grad=True)
    gradient = torch.randn(2, 4, 5)
    torch.autograd.backward(combined(h, returned, of), gradient)
    assert h.grad is not None
    assert returned.grad is not None
    assert torch.equal(h.grad, gradient)
    assert torch.equal(returned.grad, combined_gradient(gradient, of))
