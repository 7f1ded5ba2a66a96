from __future__ import annotations

from dataclasses import replace

import pytest

from pipetrace.action import Kind
from pipetrace.errors import RunError
from pipetrace.execute.channels import Channel, channel_of, channels, check_channels
from pipetrace.execute.program import Program, compile_rank
from pipetrace.schedules import build, names


def programs_of(name: str, ranks: int, microbatches: int) -> list[Program]:
    schedule = build(name, ranks, microbatches)
    return [compile_rank(schedule, rank) for rank in range(ranks)]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (6, 12), (8, 16)])
def test_both_ends_agree_in_every_schedule(name: str, ranks: int, microbatches: int) -> None:
    check_channels(programs_of(name, ranks, microbatches))


def test_a_channel_for_each_direction_pipe_and_pass() -> None:
    made = channels(programs_of("chimera", 2, 4))
    assert made == [
        Channel(sender, receiver, pipe, kind)
        for sender, receiver in ((0, 1), (1, 0))
        for pipe in (0, 1)
        for kind in (Kind.RECV_F, Kind.RECV_B)
        # Pipe 0's forwards and pipe 1's gradients go down.
        if (sender == pipe) == (kind is Kind.RECV_F)
    ]


def test_orders_that_part_are_refused() -> None:
    first, second = programs_of("gpipe", 2, 3)
    ops = list(second.ops)
    ops[0], ops[1] = ops[1], ops[0]
    with pytest.raises(RunError, match="rank 0 sends 0SEND_F0 where rank 1 awaits 1RECV_F1"):
        check_channels([first, replace(second, ops=tuple(ops))])


def test_every_transfer_has_its_channel() -> None:
    programs = programs_of("dualpipev", 4, 8)
    made = set(channels(programs))
    assert {channel_of(transfer) for program in programs for transfer in program.receives} == made
