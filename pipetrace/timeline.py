"""Where actions land in time: one type for the ideal and for the measured.

A timeline holds all tiles of one step in columns, so that a million of them are cheap. Times are integer
nanoseconds from the timeline's own zero; `epoch` says when that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from pipetrace.action import (
    COMPUTE_KINDS,
    NO_ACTION,
    Action,
    BoolArray,
    IntArray,
    Kind,
    Pair,
    code_kind,
    code_microbatch,
    code_pipe,
    code_stage,
    pack,
)

UNKNOWN = np.iinfo(np.int64).min
"""Stands in a time column where nothing is known."""


class Lane(IntEnum):
    """What runs one thing at a time on a rank."""

    COMPUTE = 0
    ALL_TO_ALL = 1
    SEND = 2
    RECV = 3


@dataclass(frozen=True, slots=True)
class Tile:
    """An action placed in time; all times in ns from the timeline's zero.

    Args:
        action: What it is; a `Pair` for an overlapped F&B.
        rank: Pipeline rank.
        lane: The lane it occupies.
        start, end: For a transfer: from when both sides had posted it to its arrival; both are that where only one
            side was recorded.
        posted: When a transfer, or an all-to-all, was posted on this rank; None where unknown or no transfer.
        waited: When the rank began to wait for a receive, or an all-to-all, its compute lane standing idle; None where
            it did not, or where that is unknown. The wait ends at `end`.
        replica: Which copy of the pipeline.
    """

    action: Action | Pair
    rank: int
    lane: Lane
    start: int
    end: int
    posted: int | None = None
    waited: int | None = None
    replica: int = 0

    @property
    def duration(self) -> int:
        """ns."""
        return self.end - self.start


@dataclass(frozen=True, eq=False)
class Timeline:
    """All tiles of one step, ordered by (replica, rank, lane, start, end).

    Args:
        ranks: Pipeline ranks p; a rank may be without tiles.
        replica, rank, lane, code, partner, start, end, posted, waited: Columns of shape (n,), see `Tile`; `partner`
            is the code of a pair's backward half, or `NO_ACTION`; `posted` and `waited` may be `UNKNOWN`.
        replicas: Copies of the pipeline.
        epoch: Unix time in ns of the timeline's zero; 0 for an ideal.
    """

    ranks: int
    replica: IntArray
    rank: IntArray
    lane: IntArray
    code: IntArray
    partner: IntArray
    start: IntArray
    end: IntArray
    posted: IntArray
    waited: IntArray
    replicas: int = 1
    epoch: int = 0

    @classmethod
    def from_columns(
        cls, ranks: int, columns: Mapping[str, IntArray], *, replicas: int = 1, epoch: int = 0
    ) -> Timeline:
        """A timeline from columns in any order of rows; those left out are filled.

        Args:
            ranks: Pipeline ranks.
            columns: `rank`, `code`, `start` and `end` at least.
            replicas: Copies of the pipeline.
            epoch: Unix time in ns of zero.
        """
        n = columns["code"].size
        fill = {"replica": 0, "lane": int(Lane.COMPUTE), "partner": NO_ACTION, "posted": UNKNOWN, "waited": UNKNOWN}
        whole = {name: columns[name] if name in columns else np.full(n, fill[name], dtype=np.int64) for name in COLUMNS}
        if not _is_sorted([whole[name] for name in SORTED_BY]):
            order = np.lexsort([whole[name] for name in reversed(SORTED_BY)])
            whole = {name: column[order] for name, column in whole.items()}
        return cls(ranks, **whole, replicas=replicas, epoch=epoch)

    @classmethod
    def from_tiles(cls, ranks: int, tiles: Iterable[Tile], *, replicas: int = 1, epoch: int = 0) -> Timeline:
        """A timeline from single tiles, in any order."""
        rows = [
            (
                tile.replica,
                tile.rank,
                int(tile.lane),
                *(
                    (tile.action.forward.code, tile.action.backward.code)
                    if isinstance(tile.action, Pair)
                    else (tile.action.code, NO_ACTION)
                ),
                tile.start,
                tile.end,
                UNKNOWN if tile.posted is None else tile.posted,
                UNKNOWN if tile.waited is None else tile.waited,
            )
            for tile in tiles
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        return cls.from_columns(
            ranks, {name: table[:, i] for i, name in enumerate(COLUMNS)}, replicas=replicas, epoch=epoch
        )

    def __len__(self) -> int:
        return self.code.size

    def tile(self, row: int) -> Tile:
        """One row as a `Tile`."""
        action = Action.from_code(int(self.code[row]))
        partner, posted, waited = int(self.partner[row]), int(self.posted[row]), int(self.waited[row])
        return Tile(
            action if partner == NO_ACTION else Pair(action, Action.from_code(partner)),
            int(self.rank[row]),
            Lane(int(self.lane[row])),
            int(self.start[row]),
            int(self.end[row]),
            None if posted == UNKNOWN else posted,
            None if waited == UNKNOWN else waited,
            int(self.replica[row]),
        )

    def __iter__(self) -> Iterator[Tile]:
        return map(self.tile, range(len(self)))

    def where(self, mask: BoolArray) -> Timeline:
        """The tiles that `mask`, shape (n,), picks."""
        if mask.all():  # a copy of a million tiles is dear
            return self
        return Timeline(
            self.ranks,
            **{name: getattr(self, name)[mask] for name in COLUMNS},
            replicas=self.replicas,
            epoch=self.epoch,
        )

    def rows_of(self, replica: int, rank: int) -> tuple[int, int]:
        """The first row of a rank's tiles, and the row after its last."""
        first, last = np.searchsorted(self.replica, (replica, replica + 1)).tolist()
        low, high = np.searchsorted(self.rank[first:last], (rank, rank + 1)).tolist()
        return first + low, first + high

    @cached_property
    def is_compute(self) -> BoolArray:
        """Which tiles are an F, B, I or W on the compute lane; shape (n,)."""
        kinds = [int(kind) for kind in COMPUTE_KINDS]
        compute: BoolArray = (self.lane == Lane.COMPUTE) & np.isin(code_kind(self.code), kinds)
        return compute

    @cached_property
    def is_timed(self) -> BoolArray:
        """Which receives are known to have been under way from `start` to `end`; shape (n,).

        Of one whose sender was not recorded only the end is known: it has no length, and its send is not in the
        timeline. That all ranks share one clock is taken for granted.
        """
        timed: BoolArray = (self.lane == Lane.RECV) & (self.start < self.end)
        sends = self.lane == Lane.SEND
        for receive, send, ahead in ((Kind.RECV_F, Kind.SEND_F, -1), (Kind.RECV_B, Kind.SEND_B, 1)):
            rows = np.flatnonzero((self.lane == Lane.RECV) & ~timed & (code_kind(self.code) == receive))
            code = self.code[rows]
            sender = pack(int(send), code_stage(code) + ahead, code_microbatch(code), code_pipe(code))
            for replica in np.unique(self.replica[rows]).tolist():
                mine = self.replica[rows] == replica
                there = self.code[sends & (self.replica == replica)]
                timed[rows[mine]] = np.isin(sender[mine], there)
        return timed

    @cached_property
    def _row_of(self) -> dict[tuple[int, int], int]:
        rows = {}
        for row, (replica, code, partner) in enumerate(
            zip(self.replica.tolist(), self.code.tolist(), self.partner.tolist(), strict=True)
        ):
            rows[replica, code] = row
            if partner != NO_ACTION:
                rows[replica, partner] = row
        return rows

    def find(self, action: Action, replica: int = 0) -> Tile | None:
        """The tile that holds an action, alone or as half of a pair; None where it is not there."""
        row = self._row_of.get((replica, action.code))
        return None if row is None else self.tile(row)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start of the first and end of the last F, B, I or W, in ns; (0, 0) where there is none."""
        compute = self.is_compute
        if not compute.any():
            return 0, 0
        return int(self.start[compute].min()), int(self.end[compute].max())

    @property
    def makespan(self) -> int:
        """ns from the first to the last F, B, I or W; what comes before and after is not in it."""
        return self.span[1] - self.span[0]

    def of_replica(self, replica: int) -> Timeline:
        """One copy's tiles as a timeline of their own."""
        alone = self.where(self.replica == replica)
        return replace(alone, replica=np.zeros_like(alone.replica), replicas=1)

    def shifted(self, by: int) -> Timeline:
        """The same tiles `by` ns later on the timeline's clock; `epoch` moves the other way, so nothing moves."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        for name in TIME_COLUMNS:
            columns[name] = np.where(columns[name] == UNKNOWN, UNKNOWN, columns[name] + by)
        epoch = self.epoch - by if self.epoch else 0
        return Timeline(self.ranks, **columns, replicas=self.replicas, epoch=epoch)

    def from_first_action(self) -> Timeline:
        """The same tiles on a clock whose zero is the first F, B, I or W."""
        return self.shifted(-self.span[0])


COLUMNS = tuple(f.name for f in fields(Timeline) if f.name not in ("ranks", "replicas", "epoch"))
SORTED_BY = ("replica", "rank", "lane", "start", "end")
TIME_COLUMNS = ("start", "end", "posted", "waited")


def _is_sorted(keys: Sequence[IntArray]) -> bool:
    """Whether rows are in order of the first key, where that is equal of the second, and so on."""
    equal = np.ones(max(keys[0].size - 1, 0), dtype=np.bool_)
    for key in keys:
        step = np.diff(key)
        if (equal & (step < 0)).any():
            return False
        equal &= step == 0
    return True
