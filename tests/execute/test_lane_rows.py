from __future__ import annotations

from itertools import pairwise

import pipetrace
from pipetrace.execute.lane_rows import NO_FENCE, NO_OTHER, lane_rows
from pipetrace.execute.program import compile_rank
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from tests.test_lanes import backward, forward, listed


def test_whole_stages_have_one_lane() -> None:
    schedule = pipetrace.build("zb-h1", 2, 4)
    program = compile_rank(schedule, 1)
    rows = lane_rows(schedule, program)
    assert [row.op for row in rows] == list(program.ops)
    assert all((row.travels, row.other, row.fence, row.gathers) == (False, NO_OTHER, NO_FENCE, False) for row in rows)
    assert [row.receives for row in rows] == [op.receives for op in program.ops]


def test_a_row_waits_for_the_other_lane_and_both_for_a_fence() -> None:
    schedule = listed(f"{forward(0, 0)} | {forward(0, 1)} | {backward(0, 0)} | {backward(0, 1)}", microbatches=2)
    rows = lane_rows(schedule, compile_rank(schedule, 0))[:8]
    assert [row.travels for row in rows] == [False, True, False, True] * 2
    # attn, then what it made is dispatched, and so on; behind the fence attention waits for the combine before it.
    assert [row.other for row in rows] == [NO_OTHER, 0, 1, 2, 3, 4, 5, 6]
    assert [row.fence for row in rows] == [NO_FENCE] * 4 + [4] * 4
    assert [row.opens for row in rows] == [False] * 4 + [True] + [False] * 3


def test_a_pair_that_begins_at_a_fence_waits_for_the_inputs_of_both() -> None:
    schedule = expand_moe(pipetrace.build("moe-1f1b", 2, 4), Overlap(MoeOrder.ALIGNED))
    rows = lane_rows(schedule, compile_rank(schedule, 0))
    gathering = [(row, beside) for row, beside in pairwise(rows) if row.gathers]
    assert gathering
    for row, beside in gathering:
        assert row.opens
        assert set(row.receives) == {*row.op.receives, *beside.op.receives}
        assert beside.op.receives or row.op.receives
