"""What a chart draws for a timeline, whichever way it draws: rectangles with their labels and hover texts.

Rank r stands around y = r, its lanes below each other inside one unit. An overlapped pair is two rectangles of half
the height, so that each microbatch stands in the colour of its half. Of the two parts of an MoE layer that share a
lane one is drawn low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from pipetrace.action import NO_ACTION, BoolArray, IntArray, code_microbatch, code_part, code_stage, code_text
from pipetrace.metrics import all_to_alls
from pipetrace.report.chunks import chunks_of
from pipetrace.report.colours import PART_LETTERS, Group, Shade, groups_of, is_low, shade, takes_alternate
from pipetrace.timeline import UNKNOWN, Lane, Timeline

FloatArray = npt.NDArray[np.float64]

# How tall the lanes are against each other; those without a tile take no room.
_LANE_SHARE = {Lane.COMPUTE: 6.0, Lane.ALL_TO_ALL: 4.0, Lane.SEND: 1.2, Lane.RECV: 1.2}
_ROW = 0.86
_STRIP = 0.3  # of the all-to-all lane, for what is exposed
_LOW = 0.6  # of a lane


_SAID = {int(Group.WAIT): "waits for ", int(Group.EXPOSED): "exposed: "}


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """The rectangles of one timeline, in columns of shape (n,).

    Args:
        group: A `Group` each.
        chunk: Of its rank, from 0.
        alternate: Which take the alternate shade.
        y, height: Middle and height, in ranks, y growing downwards.
        start, end: ns from the first action.
        code: The action; of a pair the half that is drawn. For a wait the receive that is waited for.
        partner: The backward half of the pair that a mark belongs to; `NO_ACTION` elsewhere.
        forward: The forward half of it, likewise.
        row: Row of the timeline.
        chunks: How many chunks a rank of the timeline holds.
    """

    group: IntArray
    chunk: IntArray
    alternate: BoolArray
    y: FloatArray
    height: FloatArray
    start: IntArray
    end: IntArray
    code: IntArray
    partner: IntArray
    forward: IntArray
    row: IntArray
    chunks: int

    def __len__(self) -> int:
        return self.code.size

    def pick(self, which: BoolArray | IntArray) -> Marks:
        """Some of them."""
        return replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})

    @property
    def stage(self) -> IntArray:
        """Stage of each."""
        return code_stage(self.code)

    @property
    def microbatch(self) -> IntArray:
        """Microbatch of each; -1 where there is none."""
        return code_microbatch(self.code)

    def shades(self) -> list[Shade]:
        """How each looks."""
        columns = (self.group.tolist(), self.chunk.tolist(), self.alternate.tolist())
        return [shade(Group(group), chunk, self.chunks, odd) for group, chunk, odd in zip(*columns, strict=True)]

    def labels(self) -> list[str]:
        """What is written on each: the microbatch, of a part of a layer its letter before it."""
        parts = PART_LETTERS[code_part(self.code)].tolist()
        return [
            "" if microbatch < 0 else f"{part}{microbatch}"
            for part, microbatch in zip(parts, self.microbatch.tolist(), strict=True)
        ]

    def texts(self) -> list[str]:
        """The text of each action, of a pair the whole pair's."""
        said = [_SAID.get(group, "") for group in self.group.tolist()]
        rows = zip(self.code.tolist(), self.forward.tolist(), self.partner.tolist(), said, strict=True)
        return [
            before + (code_text(forward, partner) if partner != NO_ACTION else code_text(code))
            for code, forward, partner, before in rows
        ]


_COLUMNS = [field.name for field in fields(Marks) if field.name != "chunks"]


def lanes_of(timelines: Sequence[Timeline]) -> list[Lane]:
    """The lanes that hold something in any of the timelines, in order."""
    used = {int(lane) for timeline in timelines for lane in np.unique(timeline.lane).tolist()} | {int(Lane.COMPUTE)}
    return [lane for lane in Lane if int(lane) in used]


def lane_rows(lanes: Sequence[Lane]) -> dict[Lane, tuple[float, float]]:
    """Middle and height of each lane against its rank's y; the lanes fill 86 % of the pitch."""
    total = sum(_LANE_SHARE[lane] for lane in lanes)
    rows, top = {}, -_ROW / 2
    for lane in lanes:
        height = _ROW * _LANE_SHARE[lane] / total
        rows[lane] = (top + height / 2, height * (0.96 if len(lanes) > 1 else 1.0))
        top += height
    return rows


def marks_of(timeline: Timeline, lanes: Sequence[Lane], replica: int = 0) -> Marks:
    """The marks of one replica's tiles and waits, times counted from its first F, B, I or W.

    Args:
        timeline: What to draw.
        lanes: The lanes that have a row; see `lanes_of`.
        replica: Which replica.
    """
    zero = timeline.span[0]
    rows = lane_rows(lanes)
    middle = np.array([rows.get(lane, (0.0, 0.0))[0] for lane in Lane])
    tall = np.array([rows.get(lane, (0.0, 0.0))[1] for lane in Lane])
    mine = np.flatnonzero(timeline.replica == replica)
    lane, rank, code, partner = (getattr(timeline, name)[mine] for name in ("lane", "rank", "code", "partner"))
    paired = partner != NO_ACTION
    y, height = rank + middle[lane], np.where(paired, tall[lane] / 2, tall[lane])
    height[is_low(code)] *= _LOW
    forward_y = np.where(paired, y - height / 2, y)
    waits = (lane == Lane.RECV) & (timeline.waited[mine] != UNKNOWN)
    chunks = chunks_of(timeline)
    waits[waits] = timeline.waited[mine][waits] < timeline.end[mine][waits]

    def columns(rows_: BoolArray | IntArray, **other: npt.NDArray[np.float64] | IntArray | BoolArray) -> Marks:
        picked = {
            "group": groups_of(code)[rows_],
            "chunk": chunks.of(code)[rows_],
            "alternate": takes_alternate(code)[rows_],
            "y": forward_y[rows_],
            "height": height[rows_],
            "start": timeline.start[mine][rows_] - zero,
            "end": timeline.end[mine][rows_] - zero,
            "code": code[rows_],
            "partner": partner[rows_],
            "forward": np.where(paired, code, NO_ACTION)[rows_],
            "row": mine[rows_],
        }
        return Marks(**{**picked, **other}, chunks=chunks.count)

    everything = np.ones(mine.size, dtype=np.bool_)
    lower = columns(
        paired,
        group=groups_of(partner[paired]),
        chunk=chunks.of(partner[paired]),
        alternate=takes_alternate(partner[paired]),
        y=(y + height / 2)[paired],
        code=partner[paired],
    )
    n_waits = int(waits.sum())
    waiting = columns(
        waits,
        group=np.full(n_waits, Group.WAIT, dtype=np.int64),
        y=rank[waits] + middle[Lane.COMPUTE],
        height=np.full(n_waits, tall[Lane.COMPUTE]),
        start=timeline.waited[mine][waits] - zero,
    )
    parts = [columns(everything), lower, waiting]
    if (lane == Lane.ALL_TO_ALL).any():
        parts.append(_exposed(timeline, replica, columns, mine, middle[Lane.ALL_TO_ALL], tall[Lane.ALL_TO_ALL]))
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return Marks(**joined, chunks=chunks.count)


def _exposed(
    timeline: Timeline,
    replica: int,
    columns: Callable[..., Marks],
    mine: IntArray,
    middle: float,
    tall: float,
) -> Marks:
    """A strip along the foot of the all-to-all lane wherever an all-to-all has no compute beside it."""
    of, zero = all_to_alls(timeline, replica), timeline.span[0]
    travels = np.flatnonzero(timeline.lane[mine] == Lane.ALL_TO_ALL)
    # The all-to-alls of `of` are those of `mine`, in the same order.
    row, start, end = of.exposed_spans()
    strip = _STRIP * tall
    return columns(
        travels[row],
        group=np.full(row.size, Group.EXPOSED, dtype=np.int64),
        y=of.tiles.rank[row] + middle + tall / 2 - strip / 2,
        height=np.full(row.size, strip),
        start=start - zero,
        end=end - zero,
    )
