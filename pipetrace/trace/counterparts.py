"""Which tile of one timeline is which of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import BoolArray, IntArray, Kind, code_kind
from pipetrace.metrics import halves
from pipetrace.timeline import Timeline

NO_TILE = -1


@dataclass(frozen=True, slots=True, eq=False)
class Counterparts:
    """For each tile of a timeline its counterpart in the other.

    Args:
        row: Its row in the other timeline, or `NO_TILE`; shape (n,).
        same: Whether the two are the same action or pair, rather than one the half of the other; shape (n,).
    """

    row: IntArray
    same: BoolArray


def counterparts(ideal: Timeline, measured: Timeline) -> tuple[Counterparts, Counterparts]:
    """The counterparts of each one's tiles, matched by identity; pairs also by halves, of which the forward leads."""
    there, here = (np.full(len(timeline), NO_TILE, dtype=np.int64) for timeline in (ideal, measured))
    for replica in range(min(ideal.replicas, measured.replicas)):
        code, row = _of_replica(ideal, replica)
        # The last of equal ones stands first.
        code, at = np.unique(code[::-1], return_index=True)
        row = row[::-1][at]
        of, rows = _of_replica(measured, replica)
        if not code.size or not of.size:
            continue
        at = np.minimum(np.searchsorted(code, of), code.size - 1)
        found = code[at] == of
        # Of a pair the forward half has the last word.
        order = np.argsort(code_kind(of[found]) == Kind.F, kind="stable")
        mine, other = rows[found][order], row[at][found][order]
        here[mine] = other
        there[other] = mine
    same_here = _same(measured, ideal, here)
    return Counterparts(there, _same(ideal, measured, there)), Counterparts(here, same_here)


def _of_replica(timeline: Timeline, replica: int) -> tuple[IntArray, IntArray]:
    """Codes and rows of a replica's actions, a pair's halves apart."""
    code, row = halves(timeline)
    mine = timeline.replica[row] == replica
    return code[mine], row[mine]


def _same(one: Timeline, other: Timeline, row: IntArray) -> BoolArray:
    same: BoolArray = row != NO_TILE
    if same.any():
        same = same & (one.code == other.code[row]) & (one.partner == other.partner[row])
    return same
