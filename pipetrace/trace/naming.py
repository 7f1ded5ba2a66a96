"""What a tile is called in a viewer, and what it says when clicked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    BoolArray,
    IntArray,
    Kind,
    Part,
    code_kind,
    code_layer,
    code_microbatch,
    code_part,
    code_pipe,
    code_stage,
)
from pipetrace.timeline import UNKNOWN, Timeline
from pipetrace.trace.text import Choice, Number, Piece, Text, where

KINDS = ("", *(kind.name for kind in Kind))
"""Names of kinds, by value."""
PARTS = tuple(part.name.lower() for part in Part)
"""Names of parts, by value less 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Arg:
    """An annotation of n slices.

    Args:
        key: Its name.
        value: Whole numbers, shape (n,), or text.
        present: Which slices have it; None for all.
    """

    key: str
    value: IntArray | Text
    present: BoolArray | None = None


def several_stages(timeline: Timeline) -> bool:
    """Whether a rank holds more than one stage, so that a name needs the stage to say what it is."""
    if not len(timeline):
        return False
    process = timeline.replica * timeline.ranks + timeline.rank
    chunk = code_pipe(timeline.code) << 16 | code_stage(timeline.code)
    least = np.full(int(process.max()) + 1, np.iinfo(np.int64).max)
    most = np.full(least.size, -1)
    np.minimum.at(least, process, chunk)
    np.maximum.at(most, process, chunk)
    return bool((most > least).any())


def tile_name(code: IntArray, partner: IntArray, *, with_stage: bool) -> list[Piece]:
    """`F 3`; with several stages a rank `F 3 s4`; of a part of a layer `F attn 3 l0`.

    Viewers colour by it with the digits left out.
    """
    name = _name(code, with_stage=with_stage)
    paired = partner != NO_ACTION
    if paired.any():
        name += [where(" & ", paired), *_name(partner, with_stage=with_stage, present=paired)]
    return name


def _name(code: IntArray, *, with_stage: bool, present: BoolArray | None = None) -> list[Piece]:
    microbatch, part, pipe = code_microbatch(code), code_part(code), code_pipe(code)
    pieces: list[Piece] = [Choice(KINDS, code_kind(code))]
    has = part > 0
    if has.any():
        # Before the microbatch, whose colour it has: a slice that is too narrow for its name tells the part.
        pieces += [where(" ", has), Choice(PARTS, part - 1)]
    pieces.append(Number(microbatch, microbatch >= 0, before=" "))
    if has.any():
        pieces.append(Number(code_layer(code), has, before=" l"))
    if with_stage:
        pieces.append(Number(code_stage(code), present, before=" s"))
    if pipe.any():
        pieces.append(Number(pipe, pipe > 0, before=" d"))
    return pieces


def action_text(code: IntArray, partner: IntArray) -> list[Piece]:
    """The text of actions, which reads as `str` of an action does."""
    paired = partner != NO_ACTION
    if not paired.any():
        return _action(code)
    return [
        where("(", paired),
        *_action(code),
        where(";", paired),
        *_action(partner, paired),
        where(")OVERLAP_F_B", paired),
    ]


def _action(code: IntArray, present: BoolArray | None = None) -> list[Piece]:
    microbatch, part, pipe = code_microbatch(code), code_part(code), code_pipe(code)
    pieces: list[Piece] = [Number(pipe, pipe > 0, before="d", after=":")] if pipe.any() else []
    pieces += [
        Number(code_stage(code), present),
        Choice(KINDS, code_kind(code)),
        Number(microbatch, microbatch >= 0),
    ]
    if part.any():
        has = part > 0
        pieces += [Number(code_layer(code), has, before="@", after="."), Choice(PARTS, part - 1)]
    return pieces


def tile_args(timeline: Timeline, rows: slice | IntArray, shift: int) -> list[Arg]:
    """The actions' identities, and their times in ns on the trace's clock.

    Args:
        timeline: Whose tiles.
        rows: Which.
        shift: Zero of the timeline on the trace's clock, ns.
    """
    code, partner, posted = timeline.code[rows], timeline.partner[rows], timeline.posted[rows]
    microbatch = code_microbatch(code)
    args = [
        Arg("action", action_text(code, partner)),
        Arg("stage", code_stage(code)),
        Arg("microbatch", microbatch, _some(microbatch >= 0)),
        Arg("pipe", code_pipe(code)),
        Arg("rank", timeline.rank[rows]),
    ]
    if timeline.replicas > 1:
        args.append(Arg("replica", timeline.replica[rows]))
    if (paired := partner != NO_ACTION).any():
        args.append(Arg("backward_stage", code_stage(partner), paired))
        args.append(Arg("backward_microbatch", code_microbatch(partner), paired))
    args.append(Arg("duration_ns", timeline.end[rows] - timeline.start[rows]))
    if (known := posted != UNKNOWN).any():
        args.append(Arg("posted_ns", np.where(known, posted + shift, 0), known))
    return args


def _some(present: BoolArray) -> BoolArray | None:
    return None if present.all() else present
