from __future__ import annotations

import pytest
import torch

from pipetrace.execute.expert_parallel import Alone, InProcess, Offer, Offering, members_of, taken, through


def twice(rows: torch.Tensor) -> Offering:
    """Work with two all-to-alls, the second of what the first brought."""
    first = yield Offer(rows, [len(rows)], [len(rows)])
    second = yield Offer(first + 1, [len(rows)], [len(rows)])
    return second * 2


def test_the_members_of_a_group_are_a_rank_of_every_replica() -> None:
    assert [members_of(rank, 3, 2) for rank in range(3)] == [(0, 3), (1, 4), (2, 5)]


def test_who_is_alone_takes_what_it_gives() -> None:
    rows = torch.ones(2, 3)
    assert torch.equal(Alone().all_to_all(rows, [2], [2]), rows)
    made = through(Alone(), twice(rows))
    assert made is not None
    assert torch.equal(made, torch.full((2, 3), 4.0))


def test_each_member_takes_its_share_of_what_all_offer() -> None:
    first = Offer(torch.tensor([[1.0], [2.0], [3.0]]), sent=[1, 2], received=[1, 0])
    second = Offer(torch.tensor([[4.0]]), sent=[0, 1], received=[2, 1])
    assert taken(0, [first, second]).tolist() == [[1.0]]
    assert taken(1, [first, second]).tolist() == [[2.0], [3.0], [4.0]]


def test_nobody_waits_within_one_process() -> None:
    with pytest.raises(RuntimeError, match="taken apart"):
        through(InProcess(0, 2), twice(torch.ones(1, 1)))
