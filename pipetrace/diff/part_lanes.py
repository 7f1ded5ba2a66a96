"""What the two lanes of a rank wait for from each other, where a schedule is in parts of layers."""

from __future__ import annotations

import numpy as np

from pipetrace.action import IntArray, is_all_to_all
from pipetrace.lanes import fenced_pairs
from pipetrace.links import NO_ROW
from pipetrace.schedule import Schedule


def between_lanes(schedule: Schedule, n: int, consumer: IntArray) -> tuple[IntArray, IntArray]:
    """The edges of a replay beside lanes and transfers; the rules are those of `pipetrace.lanes`.

    Args:
        schedule: In parts, without sends and receives in its lists.
        n: Rows of the replay, the schedule's first.
        consumer: The row that each transfer is for; shape (k,).

    Returns:
        Rows whose end each row waits for, n where there is none, shape (width, n); and transfers with rows that wait
        for them beside their consumer, shape (2, pairs).
    """
    links, rows = schedule.links, np.arange(len(schedule), dtype=np.int64)
    edges: list[tuple[int, int]] = []
    lane = is_all_to_all(schedule.code)
    for column in (links.inputs, links.gradients, links.local):
        here = (column != NO_ROW) & ~links.crosses(column)
        here[here] = lane[column[here]] != lane[here]
        edges += list(zip(rows[here].tolist(), column[here].tolist(), strict=True))
    pairs = set(fenced_pairs(schedule).tolist())
    into: dict[int, list[int]] = {}
    for t, row in enumerate(consumer.tolist()):
        into.setdefault(row, []).append(t)
    producers = [column.tolist() for column in (links.inputs, links.gradients)]
    shared: list[tuple[int, int]] = []
    last: list[list[int]] = [[NO_ROW, NO_ROW] for _ in range(schedule.ranks)]
    behind: list[list[list[tuple[str, int]]]] = [[[], []] for _ in range(schedule.ranks)]
    ranks, lanes, fences = links.rank.tolist(), lane.astype(int).tolist(), schedule.fences.tolist()
    for row in rows.tolist():
        rank, of = ranks[row], lanes[row]
        if fences[row]:
            held = [("end", before) for before in last[rank] if before != NO_ROW]
            for half in (row, row + 1) if row in pairs else ():
                held += [("transfer", t) for t in into.get(half, ())]
                local = (column[half] for column in producers)
                held += [("end", made) for made in local if made != NO_ROW and ranks[made] == rank]
            behind[rank] = [[*behind[rank][side], *held] for side in (0, 1)]
        for what, index in behind[rank][of]:
            if what == "end" and index != row:
                edges.append((row, index))
            elif what == "transfer" and index not in into.get(row, ()):
                shared.append((index, row))
        behind[rank][of] = []
        last[rank][of] = row
    return _table(sorted(set(edges)), n), np.array(sorted(set(shared)), dtype=np.int64).reshape(-1, 2).T


def _table(edges: list[tuple[int, int]], n: int) -> IntArray:
    """(row, what it waits for) as columns of shape (n,)."""
    width: list[int] = [0] * n
    columns: list[IntArray] = []
    for row, before in edges:
        if width[row] == len(columns):
            columns.append(np.full(n, n, dtype=np.int64))
        columns[width[row]][row] = before
        width[row] += 1
    return np.stack(columns) if columns else np.zeros((0, n), dtype=np.int64)
