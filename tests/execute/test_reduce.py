from __future__ import annotations

import torch

from pipetrace.execute.board import Board, Phase
from pipetrace.execute.config import RunConfig
from pipetrace.execute.reduce import GradientReduction, groups, reductions
from pipetrace.execute.workloads.transformer import TransformerWorkload
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from tests.execute.in_process import Labels, Loopback


def test_one_pipe_has_nothing_to_reduce() -> None:
    assert groups(Placement.v(3)) == []
    assert reductions(Placement.v(3), 1) == []


def test_the_holders_of_a_stage_reduce_together() -> None:
    placement = Placement.mirrored(4)
    assert groups(placement) == [(0, 3), (1, 2)]
    assert [(str(r.action), r.held, r.ranks) for r in reductions(placement, 3)] == [
        ("d1:0REDUCE_GRAD", ((1, 0),), (0, 3)),
        ("3REDUCE_GRAD", ((0, 3),), (0, 3)),
    ]
    assert groups(Placement.mirrored(4, 4)) == [(0, 1, 2, 3)]


def test_every_rank_meets_the_same_stages_in_the_same_order() -> None:
    for placement in (Placement.mirrored(4), Placement.mirrored(8, 4), Placement.mirrored(3)):
        work = [reductions(placement, rank) for rank in range(placement.ranks)]
        for mine in work:
            stages = [reduction.action.stage for reduction in mine]
            assert stages == sorted(stages)
        for stage in range(placement.stages):
            ranks = {rank for rank, mine in enumerate(work) for r in mine if r.action.stage == stage}
            assert {r.ranks for mine in work for r in mine if r.action.stage == stage} == {tuple(sorted(ranks))}


def test_replicas_reduce_what_they_have_alike_and_each_its_experts() -> None:
    assert groups(Placement.v(2), 2) == [(0, 2), (1, 3)]
    assert [(str(r.action), r.ranks, r.of_replica) for r in reductions(Placement.v(2), 1, 1, 2)] == [
        ("1REDUCE_GRAD", (1, 3), (3,)),
        ("2REDUCE_GRAD", (1, 3), (3,)),
    ]
    both = Placement.mirrored(2)
    assert groups(both, 2) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    assert [(r.ranks, r.of_replica) for r in reductions(both, 0, 1, 2)] == [((0, 1, 2, 3), (2, 3))] * 2


def test_replicas_on_one_rank_both_get_the_sum() -> None:
    placement = Placement(1, ((0,), (0,)))
    schedule = Schedule.from_actions("t", placement, 2, [[]])
    config = RunConfig("transformer", hidden=8, heads=2, sequence=4, batch=1)
    workload = TransformerWorkload(schedule, config)
    stages = {(pipe, 0): workload.stage(pipe, 0) for pipe in (0, 1)}
    for (pipe, _), stage in stages.items():
        for number, (_, weight) in enumerate(stage.named_parameters()):
            weight.grad = torch.full_like(weight, 10.0**pipe * (number + 1))
    # One that a replica has no gradient for counts as zero.
    stages[0, 0].named_parameters()[1][1].grad = None
    labels, board = Labels(), Board(1)
    GradientReduction(reductions(placement, 0), stages, Loopback(), board.line(0), labels).run()
    assert labels.seen == [(0, "PP:0REDUCE_GRAD")]
    assert board.phase(0) is Phase.REDUCING
    for stage in stages.values():
        for number, gradient in enumerate(stage.gradients()):
            assert torch.equal(gradient, torch.full_like(gradient, (number + 1) * (10.0 if number == 1 else 11.0)))
