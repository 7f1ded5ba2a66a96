"""Where every rank says what it is doing, in memory that all processes share.

A rank writes a few integers before each thing it does; that costs less than a microsecond and needs no lock. When a
run breaks, the board tells which action each rank was in or waiting for.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np

from pipetrace.action import NO_ACTION, Action, IntArray, Kind, code_text
from pipetrace.schedule import Schedule


class Phase(IntEnum):
    """What a rank is doing."""

    STARTING = 0
    CONNECTING = 1
    BARRIER = 2
    POSTING = 3
    WAITING = 4
    COMPUTING = 5
    FLUSHING = 6
    REDUCING = 7
    EXCHANGING = 8
    CHECKING = 9
    WRITING = 10
    DONE = 11
    DEVICE = 12


NEEDS_OTHERS = frozenset(
    {
        Phase.CONNECTING,
        Phase.BARRIER,
        Phase.POSTING,
        Phase.WAITING,
        Phase.FLUSHING,
        Phase.REDUCING,
        Phase.EXCHANGING,
    }
)
"""Phases in which a rank depends on others, so that its failure may be another rank's fault."""

_PHRASES = {
    Phase.STARTING: "was starting",
    Phase.CONNECTING: "waited for the others to connect",
    Phase.BARRIER: "waited for the others before step {step}",
    Phase.POSTING: "posted {text} in step {step}",
    Phase.WAITING: "waited for {text} from rank {peer} in step {step}",
    Phase.COMPUTING: "was in {text} of step {step}",
    Phase.FLUSHING: "waited for {text} to be taken by rank {peer} in step {step}",
    Phase.REDUCING: "waited for the other replicas in {text} of step {step}",
    Phase.EXCHANGING: "waited for the all-to-all in {text} of step {step}",
    Phase.CHECKING: "compared with the reference",
    Phase.WRITING: "wrote its trace",
    Phase.DONE: "had ended",
    Phase.DEVICE: "waited for its device to finish step {step}",
}

_OF_TRANSFERS = frozenset({Phase.POSTING, Phase.WAITING, Phase.FLUSHING})
_OF_WORK = frozenset({Phase.COMPUTING, Phase.REDUCING, Phase.EXCHANGING})
_TRANSFERS = frozenset({Kind.SEND_F, Kind.SEND_B, Kind.RECV_F, Kind.RECV_B})
_BETWEEN = "was between two actions of step {step}"

_PHASE, _CODE, _PARTNER, _STEP, _TICKS, _FIELDS = range(6)


class Board:
    """One line a rank. Made before the ranks are forked."""

    def __init__(self, ranks: int) -> None:
        self._memory = mmap.mmap(-1, ranks * _FIELDS * 8)
        self.cells: IntArray = np.frombuffer(self._memory, dtype=np.int64).reshape(ranks, _FIELDS)

    def line(self, rank: int) -> Line:
        """The line that one rank writes."""
        return Line(self.cells[rank])

    def phase(self, rank: int) -> Phase:
        """What a rank is doing."""
        return Phase(int(self.cells[rank, _PHASE]))

    @property
    def ticks(self) -> int:
        """Grows whenever any rank does something."""
        return int(self.cells[:, _TICKS].sum())

    @property
    def steps_done(self) -> int:
        """Steps that every rank has finished."""
        return int(self.cells[:, _STEP].min())

    def describe(self, rank: int, schedule: Schedule) -> str:
        """What a rank was doing when last heard of, to be read after its name: "waited for 1RECV_F3 from rank 0".

        Args:
            rank: Global rank.
            schedule: Of every replica.
        """
        number, code, partner, step, _ = self.cells[rank].tolist()
        phase = Phase(number)
        if phase not in _OF_TRANSFERS and phase not in _OF_WORK:
            return _PHRASES[phase].format(step=step)
        if _half_written(phase, code, partner):
            return _BETWEEN.format(step=step)
        first = rank - rank % schedule.ranks
        peer = first + _peer(code, schedule) if phase in (Phase.WAITING, Phase.FLUSHING) else -1
        return _PHRASES[phase].format(text=code_text(code, partner), peer=peer, step=step)


def _half_written(phase: Phase, code: int, partner: int) -> bool:
    """Whether a rank was met while it wrote its line, of which this is half the old and half the new one."""
    if code == NO_ACTION or (Action.from_code(code).kind in _TRANSFERS) != (phase in _OF_TRANSFERS):
        return True
    if partner == NO_ACTION:
        return False
    return Action.from_code(code).kind is not Kind.F or Action.from_code(partner).kind not in (Kind.B, Kind.I)


def _peer(code: int, schedule: Schedule) -> int:
    """The pipeline rank at a transfer's other end."""
    action = Action.from_code(code)
    step = -1 if action.kind in (Kind.RECV_F, Kind.SEND_B) else 1
    return schedule.placement.rank(action.stage + step, action.pipe)


class Line:
    """A rank's line of the board."""

    __slots__ = ("_cells",)

    def __init__(self, cells: IntArray) -> None:
        self._cells = cells

    def at(self, phase: Phase, code: int = NO_ACTION, partner: int = NO_ACTION) -> None:
        """Says what the rank does from now on."""
        cells = self._cells
        cells[_PHASE], cells[_CODE], cells[_PARTNER] = phase, code, partner
        cells[_TICKS] += 1

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Says that an action waits, inside, for the other replicas; still so after an error, which may be theirs."""
        cells = self._cells
        before, cells[_PHASE] = cells[_PHASE], Phase.EXCHANGING
        yield
        cells[_PHASE] = before
        cells[_TICKS] += 1

    def tick(self) -> None:
        """Says that a long phase goes on."""
        self._cells[_TICKS] += 1

    def step_done(self) -> None:
        """Says that one more step is over."""
        self._cells[_STEP] += 1

    @property
    def phase(self) -> Phase:
        """What the rank is doing."""
        return Phase(int(self._cells[_PHASE]))

    def beside(self) -> LaneLine:
        """A line for a second lane of the rank, which shows on the board while the first stands idle."""
        return LaneLine(self._cells)


class LaneLine(Line):
    """What a rank's second lane does; to be written by that lane's thread, and shown or not by the first one's."""

    __slots__ = ("_lock", "_shows", "_whole")

    def __init__(self, whole: IntArray) -> None:
        super().__init__(np.zeros(_FIELDS, dtype=np.int64))
        self._whole = whole
        self._shows = False
        # Without it the second lane's thread, held up just before it writes, would write over what the first has said
        # after `hide`.
        self._lock = threading.Lock()

    def at(self, phase: Phase, code: int = NO_ACTION, partner: int = NO_ACTION) -> None:
        """See `Line`."""
        super().at(phase, code, partner)
        self._copy()

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """See `Line`."""
        with super().exchanging():
            self._copy()
            yield
        self._copy()

    def show(self) -> None:
        """The first lane stands idle, and waits for this one."""
        with self._lock:
            self._shows = True
        self._copy()

    def hide(self) -> None:
        """It goes on."""
        with self._lock:
            self._shows = False

    def _copy(self) -> None:
        with self._lock:
            if self._shows:
                self._whole[: _PARTNER + 1] = self._cells[: _PARTNER + 1]
        # Ticks of two threads may meet, and one get lost; that they grow is enough.
        self._whole[_TICKS] += 1
