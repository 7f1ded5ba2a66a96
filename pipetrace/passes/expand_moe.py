"""Whole stages into the parts of their MoE layers, on a compute and an all-to-all lane.

The contract of what comes out, for whatever runs it:

* It is an ordinary `Schedule`, whose actions carry layer and part (`4F0@2.dispatch`). A rank has one list, the order in
  which it issues; attn and mlp run on its compute lane, dispatch and combine on its all-to-all lane, each lane in list
  order. A row starts when its lane is free and its input is there.
* The input of a forward part is the part before it, of the first part of a stage the last combine of the stage before;
  a backward goes the other way, from the first attention of the stage behind. `Schedule.links` has these edges,
  `Schedule.transfers` the sends and receives that follow: the output of a stage leaves when its last combine has
  ended, its input gradient when the first layer's attention has, both named by whole stages (`4SEND_F0`).
* A full backward is B in all its parts, or in a pair that splits it I in all parts and W in attn and mlp; dispatch and
  combine have no W. The forward, or I, of a part stands before its backward, or W, on the same lane.
* `Schedule.fence` tells which rows do not start before everything before them in the list has ended, on both lanes;
  and where a pair begins there with the first part of each half, not before the inputs of both halves are there. A
  fence stands between any two tiles of the schedule that was expanded, so that what is timed in whole stages comes out
  the same in parts; but not where the order `dualpipe` has two pairs in a row, which run into each other.
* The lists do not deadlock even if a rank runs its rows one by one in list order, waiting for each.
* All ranks of an expert-parallel group run the same list, so they issue the same all-to-alls in the same order.

In the order `dualpipe` the combine of the next pair's backward, and the attention of its forward, are issued inside a
pair if what they need is there before the pair would have ended without them. A simulation with the given costs decides
that, once: the list is then fixed. It moves rows in the list only; the order on each lane, and so the simulated times,
stay what they were. But for whoever issues in order, a row that must wait for its input holds up what is behind it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    BoolArray,
    IntArray,
    Kind,
    Part,
    code_kind,
    code_layer,
    code_part,
    with_kind,
    with_part,
)
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.lanes import lane_times
from pipetrace.metrics.tiles import is_kind
from pipetrace.passes.overlap_orders import Overlap
from pipetrace.schedule import Schedule


def expand_moe(schedule: Schedule, overlap: Overlap | None = None, costs: Costs | None = None) -> Schedule:
    """Expands every tile into the parts of its layers; see the module for what comes out.

    Args:
        schedule: Of whole stages, valid, without communication in its lists.
        overlap: How; one layer a stage in the order `dualpipe` when None.
        costs: For what `dualpipe` issues early; 1 ms for each F, I and W of a part and free transfers when None.

    Returns:
        The schedule in parts, under the same name.

    Raises:
        ScheduleError: The schedule is not valid, is in parts already, or lists sends and receives.
        DeadlockError: Its lists wait for each other.
        CostError: The costs are of another schedule.
    """
    return expand_tiles(schedule, overlap or Overlap(), costs)[0]


def expand_tiles(schedule: Schedule, overlap: Overlap, costs: Costs | None = None) -> tuple[Schedule, IntArray]:
    """`expand_moe`, and of which row of the schedule each part is; shape (parts,)."""
    if schedule.has_parts:
        raise ScheduleError(f"{schedule.name} is in parts of layers already")
    if schedule.has_communication:
        raise ScheduleError(
            f"{schedule.name} lists its sends and receives, which schedules in parts of layers do not",
            "leave --comms out; passes.remove_communication takes them out",
        )
    schedule.validate()
    code, tile, at = _parts(schedule, overlap)
    first = np.searchsorted(tile, schedule.first)
    is_pair = schedule.partner != NO_ACTION
    opens = np.isin(np.arange(len(schedule)), schedule.first)  # the first tile of a rank
    runs_on = is_pair & np.roll(is_pair, 1) & ~opens & overlap.hoists
    fence = (at == 0) & ~(opens | runs_on)[tile]
    expanded = replace(schedule, code=code, partner=np.full_like(code, NO_ACTION), first=first, fence=fence)
    return _issue_early(expanded, tile, at, runs_on, costs or Costs()) if runs_on.any() else (expanded, tile)


def _parts(schedule: Schedule, overlap: Overlap) -> tuple[IntArray, IntArray, IntArray]:
    """Of every part its code, its tile's row, and its place in the tile; tile after tile."""
    kind = code_kind(schedule.code)
    paired = schedule.partner != NO_ACTION
    back = np.where(paired, code_kind(schedule.partner), np.where(kind == Kind.F, 0, kind))
    forward = kind == Kind.F
    shape = back * 2 + forward
    templates = {
        of: overlap.items(bool(of % 2), Kind(of // 2) if of // 2 else None) for of in np.unique(shape).tolist()
    }
    size = np.array([len(templates[of]) if of in templates else 0 for of in range(2 * Kind.W + 2)])[shape]
    begin = np.concatenate([[0], np.cumsum(size)])
    code = np.empty(begin[-1], dtype=np.int64)
    backward_code = np.where(paired, schedule.partner, schedule.code)
    for of, items in templates.items():
        tiles = np.flatnonzero(shape == of)
        for position, item in enumerate(items):
            whole = (schedule.code if item.kind is Kind.F else backward_code)[tiles]
            code[begin[tiles] + position] = with_part(with_kind(whole, item.kind), item.layer, item.part)
    tile = np.repeat(np.arange(len(schedule)), size)
    return code, tile, np.arange(code.size) - begin[tile]


def _issue_early(
    expanded: Schedule, tile: IntArray, at: IntArray, runs_on: BoolArray, costs: Costs
) -> tuple[Schedule, IntArray]:
    """Issues the first two parts of a pair, a combine and an attention, in the pair before where their input is there.

    Args:
        expanded: In parts, nothing issued early yet.
        tile, at: Of each part its tile, and its place in that; shape (n,).
        runs_on: Which tiles are a pair right behind another one.
        costs: To decide with.
    """
    times = lane_times(expanded, costs)
    first_two = runs_on[tile] & (at < 2)
    ended = np.zeros(runs_on.size, dtype=np.int64)
    np.maximum.at(ended, tile[~first_two], times.end[~first_two])
    early = first_two & (times.there <= ended[tile - 1])

    # A combine goes behind the last backward attention of the pair ahead, an attention to that pair's end.
    rows = np.arange(tile.size)
    last_attention = np.zeros(runs_on.size, dtype=np.int64)
    backward = is_kind(expanded.code, Kind.B, Kind.I)
    ends_backward = backward & (code_part(expanded.code) == Part.ATTN) & (code_layer(expanded.code) == 0)
    last_attention[tile[ends_backward]] = rows[ends_backward]
    key = rows * 4
    key = np.where(early & (at == 0), last_attention[tile - 1] * 4 + 1, key)
    key = np.where(early & (at == 1), (rows - at) * 4 - 1, key)
    order = np.argsort(key, kind="stable")
    return replace(expanded, code=expanded.code[order], fence=expanded.fences[order]), tile[order]
