from __future__ import annotations

import torch

import pipetrace
from pipetrace.action import parse_action
from pipetrace.execute.config import RunConfig
from pipetrace.execute.workloads.transformer import VOCABULARY, Block, TransformerWorkload

CONFIG = RunConfig("transformer", hidden=8, heads=2, sequence=5, batch=3)
SCHEDULE = pipetrace.build("1f1b", 3, 2)


def test_a_stage_is_the_same_wherever_it_is_made() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two = (TransformerWorkload(SCHEDULE, CONFIG).stage(0, 1) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    for (name, ours), (_, theirs) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
    other = TransformerWorkload(SCHEDULE, CONFIG).stage(0, 2)
    assert not torch.equal(one.named_parameters()[2][1], other.named_parameters()[2][1])
    seeded = TransformerWorkload(SCHEDULE, RunConfig("transformer", hidden=8, heads=2, seed=1)).stage(0, 1)
    assert not torch.equal(one.named_parameters()[2][1], seeded.named_parameters()[2][1])


def test_tokens_differ_by_microbatch_and_seed_only() -> None:
    workload = TransformerWorkload(SCHEDULE, CONFIG)
    assert workload.tokens(0).shape == (3, 6)
    assert torch.equal(workload.tokens(0), TransformerWorkload(SCHEDULE, CONFIG).tokens(0))
    assert not torch.equal(workload.tokens(0), workload.tokens(1))
    assert int(workload.tokens(0).max()) < VOCABULARY


def test_only_the_ends_hold_embedding_and_loss() -> None:
    workload = TransformerWorkload(SCHEDULE, CONFIG)
    first, middle, last = (workload.stage(0, stage) for stage in range(3))
    assert first.inlet is not None
    assert middle.inlet is None is last.inlet
    shape = workload.buffer(parse_action("1RECV_F0")).shape
    output = first.forward(0, None)
    assert output is not None
    assert output.shape == shape == (3, 5, 8)
    output = middle.forward(0, output)
    assert last.forward(0, output) is None
    assert last.losses[0].ndim == 0


def test_a_token_sees_none_that_comes_after_it() -> None:
    torch.manual_seed(0)
    block = Block(8, 2)
    x = torch.randn(1, 5, 8)
    changed = x.clone()
    changed[0, 3] += 1
    with torch.no_grad():
        before, after = block(x), block(changed)
    assert torch.equal(before[0, :3], after[0, :3])
    assert not torch.equal(before[0, 3:], after[0, 3:])
