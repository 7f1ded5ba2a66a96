"""Which of its rank's chunks a tile belongs to, and so in which shade of its kind it is drawn.

Papers draw a rank's chunks apart, dark and light; without that neither interleaving nor a V can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipetrace.action import IntArray, code_pipe, code_stage
from pipetrace.metrics.chunks import halves
from pipetrace.report.colours import Group, Shade, groups_of, shade, takes_alternate
from pipetrace.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The chunks of a timeline's ranks: its stages in order, with several pipes pipe by pipe.

    Args:
        count: The most that a rank holds.
        held: For each chunk the (pipe, stage) that are some rank's chunk of that number, in order.
        table: Chunk of each (pipe, stage); shape (pipes, stages).
    """

    count: int
    held: tuple[tuple[tuple[int, int], ...], ...]
    table: IntArray

    def of(self, codes: IntArray) -> IntArray:
        """The chunk of each code, 0 where no tile computes on its stage; shape (n,)."""
        pipe, stage = code_pipe(codes), code_stage(codes)
        known = (pipe < self.table.shape[0]) & (stage < self.table.shape[1])
        chunks: IntArray = np.where(known, self.table[np.where(known, pipe, 0), np.where(known, stage, 0)], 0)
        return chunks

    def shades(self, codes: IntArray) -> list[Shade]:
        """How each action is drawn."""
        columns = (groups_of(codes), self.of(codes), takes_alternate(codes))
        return [
            shade(Group(group), chunk, self.count, odd)
            for group, chunk, odd in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def name(self, chunk: int) -> str:
        """A chunk in words, with its stages where they follow each other."""
        pipes = {pipe for pipe, _ in self.held[chunk]}
        if sum(pipes == {pipe for pipe, _ in other} for other in self.held) == 1 and len(pipes) == 1 < len(self._pipes):
            return f"pipe {pipes.pop()}"
        stages = sorted({stage for _, stage in self.held[chunk]})
        run = all(after == before + 1 for before, after in pairwise(stages))
        return f"chunk {chunk}" + (f" (stages {stages[0]}–{stages[-1]})" if run and len(stages) > 1 else "")

    @property
    def _pipes(self) -> set[int]:
        return {pipe for held in self.held for pipe, _ in held}


def chunks_of(timeline: Timeline) -> Chunks:
    """The chunks of the ranks of a timeline, as far as its F, B, I and W tell."""
    codes, rows = halves(timeline)
    at_work = timeline.is_compute[rows]
    # Rank, pipe and stage in one number, as rows are slow to sort.
    keys = timeline.rank[rows[at_work]] << 32 | code_pipe(codes[at_work]) << 16 | code_stage(codes[at_work])
    there = [(key >> 32, key >> 16 & 0xFFFF, key & 0xFFFF) for key in np.unique(keys).tolist()] or [(0, 0, 0)]
    table = np.zeros([1 + max(of[field] for of in there) for field in (1, 2)], dtype=np.int64)
    held: list[list[tuple[int, int]]] = []
    counted: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for rank, pipe, stage in there:
        if (pipe, stage) in seen:  # in what is measured a stage can stand on two ranks
            continue
        seen.add((pipe, stage))
        chunk = counted[rank] = counted.get(rank, -1) + 1
        table[pipe, stage] = chunk
        if chunk == len(held):
            held.append([])
        held[chunk].append((pipe, stage))
    return Chunks(len(held), tuple(tuple(each) for each in held), table)


def legend_of_chunks(charts: Sequence[Chunks], *, letters: bool = False) -> str:
    """How the chunks of a rank are told apart in charts that share a legend; empty where no rank holds two.

    Args:
        charts: The chunks of each.
        letters: By capital and small letters, and not by shades.
    """
    named = {tuple(of.name(chunk) for chunk in range(of.count)) for of in charts if of.count > 1}
    if not named:
        return ""
    names = named.pop() if len(named) == 1 else ()
    if letters:
        even, odd = names if len(names) == 2 else ("even chunks", "odd chunks")
        return f"capital letters: {even}; small: {odd}"
    if not names:
        return "dark to light: first to last chunk, or pipe"
    return "dark to light: " + (", ".join(names) if len(names) == 2 else f"{names[0]} to {names[-1]}")
