from __future__ import annotations

import pytest

import pipetrace
from pipetrace.action import NO_ACTION, parse_action
from pipetrace.execute.board import Board, Phase

SCHEDULE = pipetrace.build("1f1b", 3, 2)


@pytest.mark.parametrize(
    ("phase", "action", "says"),
    [
        (Phase.STARTING, "", "was starting"),
        (Phase.BARRIER, "", "waited for the others before step 0"),
        (Phase.POSTING, "1SEND_F0", "posted 1SEND_F0 in step 0"),
        (Phase.WAITING, "1RECV_F0", "waited for 1RECV_F0 from rank 0 in step 0"),
        (Phase.WAITING, "1RECV_B0", "waited for 1RECV_B0 from rank 2 in step 0"),
        (Phase.FLUSHING, "1SEND_F0", "waited for 1SEND_F0 to be taken by rank 2 in step 0"),
        (Phase.FLUSHING, "1SEND_B0", "waited for 1SEND_B0 to be taken by rank 0 in step 0"),
        (Phase.COMPUTING, "1F0", "was in 1F0 of step 0"),
    ],
)
def test_a_rank_says_what_it_does(phase: Phase, action: str, says: str) -> None:
    board = Board(3)
    board.line(1).at(phase, parse_action(action).code if action else NO_ACTION)
    assert board.describe(1, SCHEDULE) == says
    assert board.describe(0, SCHEDULE) == "was starting"


def test_a_replica_says_whom_it_waits_for_by_global_rank() -> None:
    board = Board(6)
    line = board.line(4)
    line.at(Phase.WAITING, parse_action("1RECV_F0").code)
    assert board.describe(4, SCHEDULE) == "waited for 1RECV_F0 from rank 3 in step 0"
    line.at(Phase.COMPUTING, parse_action("1F0").code)
    with line.exchanging():
        assert board.describe(4, SCHEDULE) == "waited for the all-to-all in 1F0 of step 0"
    assert board.phase(4) is Phase.COMPUTING
    with pytest.raises(ConnectionError), line.exchanging():
        raise ConnectionError
    assert board.phase(4) is Phase.EXCHANGING


def test_every_phase_can_be_described() -> None:
    board = Board(1)
    for phase in Phase:
        board.line(0).at(phase, parse_action("1RECV_F0").code)
        assert board.describe(0, SCHEDULE)
        assert board.phase(0) is phase is board.line(0).phase


def test_ticks_grow_and_steps_count_when_all_are_done() -> None:
    board = Board(2)
    ticks = board.ticks
    board.line(0).at(Phase.BARRIER)
    board.line(1).tick()
    assert board.ticks == ticks + 2
    board.line(0).step_done()
    assert board.steps_done == 0
    board.line(1).step_done()
    assert board.steps_done == 1
