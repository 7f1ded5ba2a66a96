"""What is scheduled: an action, the identity that joins ideal and measured.

An action is a kind, a pipe, a stage and a microbatch, and inside an MoE layer also a layer and a part. Its text is
torch's, extended::

    [d<pipe>:]<stage><KIND><microbatch>[@<layer>.<part>]        0F3  3I1  d1:2W6  4F0@2.dispatch  1RECV_F3  0OPTIM
    (<forward>;<backward>)OVERLAP_F_B                           (0F3;3B1)OVERLAP_F_B

Beside the readable form every action has a `code`, one positive 64-bit integer, so that a million of them fit in an
array and are compared, sorted and matched without a Python object each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pipetrace.errors import ActionError
from pipetrace.shown import shown

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


class Kind(IntEnum):
    """What an action does. The values are part of the code and never change."""

    F = 1
    B = 2
    I = 3  # noqa: E741 - the field's own letter
    W = 4
    SEND_F = 5
    RECV_F = 6
    SEND_B = 7
    RECV_B = 8
    UNSHARD = 9
    RESHARD = 10
    REDUCE_GRAD = 11
    OPTIM = 12


class Part(IntEnum):
    """A part of an MoE layer. Dispatch and combine are all-to-alls."""

    ATTN = 1
    DISPATCH = 2
    MLP = 3
    COMBINE = 4


ALL_TO_ALL_PARTS = frozenset({Part.DISPATCH, Part.COMBINE})
COMPUTE_KINDS = frozenset({Kind.F, Kind.B, Kind.I, Kind.W})
SEND_KINDS = frozenset({Kind.SEND_F, Kind.SEND_B})
RECV_KINDS = frozenset({Kind.RECV_F, Kind.RECV_B})
TRANSFER_KINDS = SEND_KINDS | RECV_KINDS
WHOLE_STAGE_KINDS = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.OPTIM})

# Fields of the code from the low bits up: kind 5, part 3, layer+1 10, microbatch+1 20, stage 16, pipe 6: 60 bits.
_PART, _LAYER, _MICROBATCH, _STAGE, _PIPE, CODE_BITS = 5, 8, 18, 38, 54, 60
_PART_FIELDS = (1 << _MICROBATCH) - (1 << _PART)
MAX_LAYER, MAX_MICROBATCH, MAX_STAGE, MAX_PIPE = (1 << 10) - 2, (1 << 20) - 2, (1 << 16) - 1, (1 << 6) - 1

NO_ACTION = 0
"""The code that stands for no action, e.g. for the second half of a tile that is no pair."""

Codes = TypeVar("Codes", int, IntArray)


def code_kind(code: Codes) -> Codes:
    """The kind of each code, as the value of a `Kind`."""
    return code & 31


def code_part(code: Codes) -> Codes:
    """The part of each code, as the value of a `Part`; 0 where there is none."""
    return (code >> _PART) & 7


def is_all_to_all(code: IntArray) -> BoolArray:
    """Which codes are of an all-to-all; the shape of `code`."""
    part = code_part(code)
    which: BoolArray = (part == Part.DISPATCH) | (part == Part.COMBINE)
    return which


def code_layer(code: Codes) -> Codes:
    """The layer of each code; -1 where there is none."""
    return ((code >> _LAYER) & 1023) - 1


def code_microbatch(code: Codes) -> Codes:
    """The microbatch of each code; -1 where there is none."""
    return ((code >> _MICROBATCH) & 1048575) - 1


def code_stage(code: Codes) -> Codes:
    """The stage of each code."""
    return (code >> _STAGE) & 65535


def code_pipe(code: Codes) -> Codes:
    """The pipe of each code."""
    return (code >> _PIPE) & 63


def pack(kind: int, stage: Codes, microbatch: Codes, pipe: Codes | int = 0) -> Codes:
    """The code of an action without layer and part; no range is checked (`Action` does)."""
    return kind | (microbatch + 1) << _MICROBATCH | stage << _STAGE | pipe << _PIPE


def with_kind(code: Codes, kind: int) -> Codes:
    """The same codes with another kind."""
    return (code & ~31) | kind


def with_part(code: Codes, layer: Codes | int, part: int) -> Codes:
    """The same codes in a layer and part; no range is checked (`Action` does)."""
    return whole_stage(code) | part << _PART | (layer + 1) << _LAYER


def whole_stage(code: Codes) -> Codes:
    """The same codes without layer and part."""
    return code & ~_PART_FIELDS


_Member = TypeVar("_Member", Kind, Part)


def _member(known: type[_Member], value: object) -> _Member:
    """The member with that value; raises an ActionError where there is none."""
    if type(value) is int and value in tuple(known):
        return known(value)
    raise ActionError(
        f"{shown(value)} is no {known.__name__.lower()} of an action", f"give {known.__name__}.{known(1).name}"
    )


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One action of a schedule.

    Args:
        kind: What is done.
        stage: Chunk of the model, from 0 along the forward direction.
        microbatch: Counted over the whole step from 0; None for kinds that concern the whole stage.
        pipe: Direction of a bidirectional schedule.
        layer: Layer inside the stage, from 0, with `part`.
        part: Part of an MoE layer, with `layer`.

    Raises:
        ActionError: A field is out of range, or the fields do not go together.
    """

    kind: Kind
    stage: int
    microbatch: int | None = None
    pipe: int = 0
    layer: int | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        # A number stands for the kind or part that has it as its value; everything else compares with `is`.
        if type(self.kind) is not Kind:
            object.__setattr__(self, "kind", _member(Kind, self.kind))
        if self.part is not None and type(self.part) is not Part:
            object.__setattr__(self, "part", _member(Part, self.part))
        for name, value, most in (
            ("stage", self.stage, MAX_STAGE),
            ("microbatch", self.microbatch, MAX_MICROBATCH),
            ("pipe", self.pipe, MAX_PIPE),
            ("layer", self.layer, MAX_LAYER),
        ):
            if value is None and name in ("microbatch", "layer"):
                continue
            if type(value) is not int and not isinstance(value, np.integer):
                raise ActionError(f"{name} {shown(value)} of a {self.kind.name} is no whole number")
            if not 0 <= value <= most:
                raise ActionError(f"{name} {shown(value)} of a {self.kind.name} is outside 0 ... {most}")
        if (self.microbatch is None) != (self.kind in WHOLE_STAGE_KINDS):
            verb = "takes no" if self.kind in WHOLE_STAGE_KINDS else "needs a"
            raise ActionError(f"{self.kind.name} of stage {self.stage} {verb} microbatch")
        if (self.layer is None) != (self.part is None):
            raise ActionError(f"{self.kind.name} of stage {self.stage}: layer and part come together")
        if self.part is not None:
            if self.kind not in COMPUTE_KINDS:
                raise ActionError(f"{self.kind.name} of stage {self.stage} has no parts")
            if self.kind is Kind.W and self.part in ALL_TO_ALL_PARTS:
                raise ActionError(f"{self.part.name.lower()} has no weights, so it has no W")

    @property
    def code(self) -> int:
        """The action as one positive integer below 2**60."""
        layer = 0 if self.layer is None else self.layer + 1
        microbatch = 0 if self.microbatch is None else self.microbatch + 1
        return (
            int(self.kind)
            | int(self.part or 0) << _PART
            | layer << _LAYER
            | microbatch << _MICROBATCH
            | self.stage << _STAGE
            | self.pipe << _PIPE
        )

    @classmethod
    def from_code(cls, code: int) -> Action:
        """The action that `code` stands for.

        Raises:
            ActionError: No action has this code.
        """
        code = int(code)
        layer, microbatch, part = code_layer(code), code_microbatch(code), code_part(code)
        try:
            if code >> CODE_BITS:
                raise ValueError
            return cls(
                Kind(code_kind(code)),
                code_stage(code),
                None if microbatch < 0 else microbatch,
                code_pipe(code),
                None if layer < 0 else layer,
                Part(part) if part else None,
            )
        except ValueError:
            raise ActionError(f"no action has the code {code}") from None

    def __str__(self) -> str:
        pipe = f"d{self.pipe}:" if self.pipe else ""
        microbatch = "" if self.microbatch is None else self.microbatch
        part = "" if self.part is None else f"@{self.layer}.{self.part.name.lower()}"
        return f"{pipe}{self.stage}{self.kind.name}{microbatch}{part}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two actions fused into one tile: a microbatch's forward with another's backward (F&B).

    Raises:
        ActionError: The halves are not a forward and a backward.
    """

    forward: Action
    backward: Action

    def __post_init__(self) -> None:
        halves = (self.forward, self.backward)
        if any(not isinstance(half, Action) for half in halves):
            raise ActionError(f"a pair of {shown(halves)}", "give two actions, the forward first")
        if self.forward.kind is not Kind.F or self.backward.kind not in (Kind.B, Kind.I):
            raise ActionError(
                f"({self.forward};{self.backward})OVERLAP_F_B does not join a forward and a backward",
                "write the forward first, as in (0F3;3B1)OVERLAP_F_B",
            )

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


_NUMBER = r"(?:0|[1-9][0-9]{0,7})"
_ACTION = re.compile(
    rf"(?:d(?P<pipe>{_NUMBER}):)?(?P<stage>{_NUMBER})"
    rf"(?P<kind>{'|'.join(sorted((k.name for k in Kind), key=len, reverse=True))})"
    rf"(?P<microbatch>{_NUMBER})?"
    rf"(?:@(?P<layer>{_NUMBER})\.(?P<part>{'|'.join(p.name.lower() for p in Part)}))?"
)
_PAIR = re.compile(r"\(([^();]*);([^();]*)\)OVERLAP_F_B")


def parse_action(text: str) -> Action:
    """Reads one action; what `str` of an action prints is read back as it was.

    Raises:
        ActionError: The text is no action, to the last character.
    """
    match = _ACTION.fullmatch(text)
    if match is None:
        raise ActionError(
            f"{text[:60]!r} is no action",
            "an action reads [d<pipe>:]<stage><KIND><microbatch>, as in 0F3, 3I1, d1:2W6 or 1RECV_F3",
        )
    number = {key: None if match[key] is None else int(match[key]) for key in ("pipe", "microbatch", "layer")}
    part = match["part"]
    try:
        return Action(
            Kind[match["kind"]],
            int(match["stage"]),
            number["microbatch"],
            number["pipe"] or 0,
            number["layer"],
            None if part is None else Part[part.upper()],
        )
    except ActionError as error:
        raise ActionError(f"{text[:60]!r}: {error.message}", error.hint) from None


def parse(text: str) -> Action | Pair:
    """Reads an action or an overlapped pair.

    Raises:
        ActionError: The text is neither.
    """
    match = _PAIR.fullmatch(text)
    if match is None:
        return parse_action(text)
    return Pair(parse_action(match[1]), parse_action(match[2]))


def code_text(code: int, partner: int = NO_ACTION) -> str:
    """The text of an action, or of a pair where `partner` is not `NO_ACTION`."""
    if partner == NO_ACTION:
        return str(Action.from_code(code))
    return str(Pair(Action.from_code(code), Action.from_code(partner)))
