from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import pipetrace
from pipetrace.action import NO_ACTION, parse_action
from pipetrace.execute.board import Board, LaneLine, Phase

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


def test_a_rank_that_is_met_while_it_writes_can_be_described() -> None:
    """Half of a line is of what it did before: no combination may end the process that watches."""
    board = Board(3)
    texts = ("1F1", "1B0", "1RECV_F1", "1RECV_B0", "1SEND_F0", "1SEND_B1", "1REDUCE_GRAD")
    codes = [NO_ACTION, *(parse_action(text).code for text in texts)]
    for phase, code, partner in itertools.product(Phase, codes, codes):
        board.line(1).at(phase, code, partner)
        assert "{" not in board.describe(1, SCHEDULE)
    for phase, text in ((Phase.WAITING, "1F1"), (Phase.COMPUTING, "1RECV_F1"), (Phase.POSTING, "")):
        board.line(1).at(phase, parse_action(text).code if text else NO_ACTION)
        assert board.describe(1, SCHEDULE) == "was between two actions of step 0"


class _HeldUp:
    """Cells whose writer is held up until told to go on."""

    def __init__(self, cells: Any) -> None:
        self.cells, self.came, self.go_on = cells, threading.Event(), threading.Event()

    def __getitem__(self, key: Any) -> Any:
        return self.cells[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, slice):
            self.came.set()
            assert self.go_on.wait(60)
        self.cells[key] = value


@pytest.fixture
def held_up() -> Iterator[tuple[Board, LaneLine, _HeldUp, threading.Thread]]:
    """A second lane whose thread is about to show what it does, and is held up."""
    board = Board(1)
    beside = board.line(0).beside()
    beside.show()
    cells = beside._whole = _HeldUp(beside._whole)  # type: ignore[assignment]
    assert isinstance(cells, _HeldUp)
    writes = threading.Thread(target=beside.at, args=(Phase.COMPUTING, parse_action("0F0@0.dispatch").code))
    writes.start()
    assert cells.came.wait(60)
    yield board, beside, cells, writes
    cells.go_on.set()
    writes.join()


def test_a_second_lane_that_is_held_up_does_not_write_over_the_first(
    held_up: tuple[Board, LaneLine, _HeldUp, threading.Thread],
) -> None:
    board, beside, cells, writes = held_up
    threading.Timer(0.05, cells.go_on.set).start()
    beside.hide()
    board.line(0).at(Phase.COMPUTING, parse_action("0F0@0.mlp").code)
    cells.go_on.set()
    writes.join()
    assert board.describe(0, SCHEDULE) == "was in 0F0@0.mlp of step 0"


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
