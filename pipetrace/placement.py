"""Which rank holds which stage, for every pipe."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from pipetrace.errors import ScheduleError
from pipetrace.shown import shown


@dataclass(frozen=True, slots=True)
class Placement:
    """(pipe, stage) → rank.

    Args:
        ranks: Pipeline ranks p.
        table: For each pipe the rank of stage 0, 1, …; all pipes hold the same number of stages.
        name: "loop", "v", "mirrored", or "custom" for one that was read off a schedule.

    Raises:
        ScheduleError: A rank is no whole number, out of range or holds nothing, or the pipes differ in length.
    """

    ranks: int
    table: tuple[tuple[int, ...], ...]
    name: str = "custom"

    def __post_init__(self) -> None:
        try:
            table = tuple(tuple(map(operator.index, stages)) for stages in self.table)
            object.__setattr__(self, "ranks", operator.index(self.ranks))
        except TypeError:
            raise ScheduleError(
                f"a placement of {shown(self.ranks)} ranks and the table {shown(self.table)}",
                "give a whole number of ranks, and for each pipe the rank of every stage",
            ) from None
        object.__setattr__(self, "table", table)
        if self.ranks < 1 or not self.table or not self.table[0]:
            raise ScheduleError("a placement needs at least one rank, one pipe and one stage")
        if len({len(stages) for stages in self.table}) > 1:
            raise ScheduleError(
                f"the pipes hold {[len(stages) for stages in self.table]} stages; they must hold the same"
            )
        held = {rank for stages in self.table for rank in stages}
        if strays := held - set(range(self.ranks)):
            raise ScheduleError(f"the placement names rank {min(strays)}, but there are {self.ranks} ranks, from 0")
        if len(held) < self.ranks:
            idle = min(set(range(self.ranks)) - held)
            raise ScheduleError(f"rank {idle} holds no stage", f"{len(held)} ranks would do")

    @classmethod
    def loop(cls, ranks: int, chunks: int = 1) -> Placement:
        """Stage s on rank s mod p: one chunk a rank for 1F1B, `chunks` for interleaved schedules."""
        return cls(ranks, (tuple(range(ranks)) * chunks,), "loop")

    @classmethod
    def v(cls, ranks: int) -> Placement:
        """Two chunks a rank: stages 0 … p-1 down the ranks, p … 2p-1 back up."""
        return cls(ranks, ((*range(ranks), *reversed(range(ranks))),), "v")

    @classmethod
    def mirrored(cls, ranks: int, pipes: int = 2) -> Placement:
        """Pipes in pairs, one down the ranks and one up; pair i of f begins i p/f ranks further."""
        table = []
        for pair in range(pipes // 2):
            down = tuple((stage + pair * 2 * ranks // pipes) % ranks for stage in range(ranks))
            table += [down, down[::-1]]
        return cls(ranks, tuple(table), "mirrored")

    @classmethod
    def of_table(cls, ranks: int, table: tuple[tuple[int, ...], ...]) -> Placement:
        """The placement of a table that was read off a schedule, by its name where it is loop, v or mirrored.

        Args:
            ranks: Pipeline ranks p.
            table: As in the class. One that two names fit, as on a single rank, is the first of the three.

        Raises:
            ScheduleError: As the class.
        """
        given = cls(ranks, table)
        stages = given.stages
        known = []
        if given.pipes == 1 and stages % ranks == 0:
            known.append(cls.loop(ranks, stages // ranks))
        if given.pipes == 1 and stages == 2 * ranks:
            known.append(cls.v(ranks))
        if given.pipes % 2 == 0 and stages == ranks:
            known.append(cls.mirrored(ranks, given.pipes))
        return next((placement for placement in known if placement.table == table), given)

    @property
    def pipes(self) -> int:
        """Directions; each pipe is a replica of all stages."""
        return len(self.table)

    @property
    def stages(self) -> int:
        """Stages of the model, the same in each pipe."""
        return len(self.table[0])

    def rank(self, stage: int, pipe: int = 0) -> int:
        """The rank that holds a stage of a pipe."""
        return self.table[pipe][stage]

    def held_by(self, rank: int) -> Sequence[tuple[int, int]]:
        """(pipe, stage) of everything that `rank` holds, by pipe, then stage."""
        return [(k, s) for k, stages in enumerate(self.table) for s, holder in enumerate(stages) if holder == rank]
