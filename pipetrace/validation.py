"""Checks that a schedule holds every action exactly once, and where it belongs."""

from __future__ import annotations

import numpy as np

from pipetrace.action import (
    CODE_BITS,
    COMPUTE_KINDS,
    NO_ACTION,
    TRANSFER_KINDS,
    WHOLE_STAGE_KINDS,
    Action,
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
    is_all_to_all,
)
from pipetrace.chain import Chain
from pipetrace.errors import ActionError, ScheduleError
from pipetrace.placement import Placement

_PARTS_HINT = "a schedule holds whole stages, or parts of layers and neither pairs nor SEND and RECV, which are derived"


def validate(code: IntArray, partner: IntArray, first: IntArray, placement: Placement, microbatches: int) -> Chain:
    """Checks every action of a schedule by itself, and that no F, B, I or W is missing; the order is not looked at.

    Returns:
        The chain along which the actions are written: stages, or parts of layers.

    Raises:
        ScheduleError: With rank, action and reason, for the first thing that is wrong.
    """
    if microbatches % placement.pipes:
        raise ScheduleError(f"{microbatches} microbatches cannot be shared by {placement.pipes} pipes evenly")
    row_rank = np.repeat(np.arange(placement.ranks, dtype=np.int64), np.diff(first))
    paired = partner != NO_ACTION
    every = np.concatenate([code, partner[paired]])
    rank = np.concatenate([row_rank, row_rank[paired]])
    kind, stage, microbatch, pipe = code_kind(every), code_stage(every), code_microbatch(every), code_pipe(every)

    def refuse(wrong: np.ndarray, reason: str, hint: str = "") -> None:
        if wrong.any():
            at = int(np.argmax(wrong))
            try:
                action = Action.from_code(int(every[at]))
            except ActionError as error:
                row = int(np.concatenate([np.arange(code.size), np.flatnonzero(paired)])[at])
                entry = row - int(first[rank[at]])
                raise ScheduleError(
                    f"rank {rank[at]}: entry {entry} of its list: {error.message}", error.hint
                ) from None
            holder = -1
            if action.stage < placement.stages and action.pipe < placement.pipes:
                holder = placement.rank(action.stage, action.pipe)
            raise ScheduleError(
                f"rank {rank[at]}: {action} "
                + reason.format(stages=placement.stages, stage=action.stage, holder=holder),
                hint,
            )

    refuse(_is_no_action(every), "is no action")
    mixed = paired.copy()
    mixed[paired] = (kind[: code.size][paired] != Kind.F) | ~np.isin(kind[code.size :], (Kind.B, Kind.I))
    refuse(
        np.concatenate([mixed, mixed[paired]]),
        "stands in a pair that does not join a forward and a backward",
        "a pair is an F in code, and a B or I in partner",
    )
    refuse(
        ~np.isin(kind, [int(k) for k in COMPUTE_KINDS | TRANSFER_KINDS]),
        "is no F, B, I or W, nor a SEND or RECV",
        "what concerns a whole stage is not scheduled, leave it out",
    )
    refuse(pipe >= placement.pipes, f"names a pipe that is not there: the placement has {placement.pipes}")
    refuse(stage >= placement.stages, "names a stage that is not there: the placement has {stages}")
    refuse(microbatch >= microbatches, f"names a microbatch that is not there: the step has {microbatches}")
    refuse(
        pipe != microbatch // (microbatches // placement.pipes),
        "names a microbatch of another pipe",
        f"pipe k of {placement.pipes} holds the k-th run of {microbatches // placement.pipes} consecutive microbatches",
    )
    refuse(
        (holder := np.array(placement.table, dtype=np.int64)[pipe, stage]) != rank,
        f"stands on the wrong rank: the {placement.name} placement puts stage {{stage}} on rank {{holder}}",
        _where_they_stand(placement, rank, pipe, stage) if (holder != rank).any() else "",
    )

    has_part = code_part(every) != 0
    if has_part.any():
        refuse(~has_part, "stands beside parts of layers", _PARTS_HINT)
        refuse(
            np.concatenate([paired, paired[paired]]),
            "is part of a pair",
            "parts overlap because all-to-alls have a lane of their own: write the two halves apart",
        )
    chain = Chain.of_codes(every, placement.stages)

    # One slot for each (place of the chain, microbatch); the pipe follows from the microbatch.
    slots = len(chain) * microbatches
    slot = chain.place(every) * microbatches + microbatch
    # A file may name a far stage or microbatch; what is absent is then found without a table of that size.
    if slots > 4 * every.size + 16:
        seen = set(slot[kind == Kind.F].tolist())
        absent = next(s for s in range(slots) if s not in seen)
        raise _missing("F", absent, chain, placement, microbatches)
    count = {k: np.bincount(slot[kind == k], minlength=slots) for k in COMPUTE_KINDS | TRANSFER_KINDS}
    for k in sorted(count):
        refuse((kind == k) & (count[k][slot] > 1), f"stands {int(count[k].max(initial=0))} times in the schedule")
    split = count[Kind.I] + count[Kind.W] > 0
    refuse((kind == Kind.B) & split[slot], "is a full backward, but an I or W of the same microbatch stands beside it")
    has_weights = np.ones(slots, dtype=np.bool_)
    has_weights[slot[is_all_to_all(every)]] = False
    for letter, absent_slots in (
        ("F", count[Kind.F] == 0),
        ("backward", (count[Kind.B] == 0) & ~split),
        ("I", split & (count[Kind.I] == 0)),
        ("W", split & (count[Kind.W] == 0) & has_weights),
    ):
        if absent_slots.any():
            raise _missing(letter, int(np.argmax(absent_slots)), chain, placement, microbatches)
    return chain


def _is_no_action(code: IntArray) -> BoolArray:
    """Which codes `Action.from_code` refuses."""
    kind, part, layer = code_kind(code), code_part(code), code_layer(code)
    whole_stage = np.isin(kind, [int(k) for k in WHOLE_STAGE_KINDS])
    in_parts = (part <= max(Part)) & np.isin(kind, [int(k) for k in COMPUTE_KINDS])
    in_parts &= ~((kind == Kind.W) & is_all_to_all(code))
    wrong: BoolArray = (code >> CODE_BITS != 0) | (kind == NO_ACTION) | (kind > max(Kind))
    wrong |= (code_microbatch(code) < 0) != whole_stage
    wrong |= ((part == 0) != (layer < 0)) | ((part != 0) & ~in_parts)
    return wrong


def _where_they_stand(placement: Placement, rank: IntArray, pipe: IntArray, stage: IntArray) -> str:
    """Where the stages stand, against where the placement wants them: a hint."""
    standing = {(k, s): r for k, s, r in zip(pipe.tolist(), stage.tolist(), rank.tolist(), strict=True)}
    table = tuple(tuple(standing.get((k, s), -1) for s in range(placement.stages)) for k in range(placement.pipes))
    if not np.array_equal(np.array(table)[pipe, stage], rank):
        return "a stage lives on one rank"
    k = next(k for k in range(placement.pipes) if table[k] != placement.table[k])
    stands, wanted = (
        " ".join(map(str, t[k][:16])) + (" ..." if len(t[k]) > 16 else "") for t in (table, placement.table)
    )
    name = ""
    if all(-1 not in stages for stages in table) and len(set(sum(table, ()))) == placement.ranks:
        found = Placement.of_table(placement.ranks, table).name
        name = "" if found == "custom" else f", as the {found} placement has them"
    of = f" of pipe {k}" if placement.pipes > 1 else ""
    return f"the stages{of} stand on ranks {stands}{name}; the {placement.name} placement has them on {wanted}"


def _missing(what: str, slot: int, chain: Chain, placement: Placement, microbatches: int) -> ScheduleError:
    place, microbatch = divmod(slot, microbatches)
    stage, pipe = chain.stage(place), microbatch // (microbatches // placement.pipes)
    of, each = f"stage {stage}, microbatch {microbatch}", f"{placement.stages} stages"
    if chain.has_parts:
        layer, part = divmod(place - int(chain.first[stage]), len(Part))
        of = f"layer {layer}, {Part(part + 1).name.lower()}, of {of}"
        each = f"{len(chain)} parts of layers"
    return ScheduleError(
        f"rank {placement.rank(stage, pipe)}: the {what} of {of} is missing",
        f"each of {each} x {microbatches} microbatches needs an F, and a B or an I and a W",
    )
