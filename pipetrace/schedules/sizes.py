"""Whether a schedule of given sizes can be built at all; asked before a builder begins to fill memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipetrace.action import MAX_MICROBATCH, MAX_PIPE, MAX_STAGE
from pipetrace.errors import SizeError
from pipetrace.schedules.spec import FLAGS, ScheduleSpec
from pipetrace.shown import shown

MAX_ACTIONS = 50_000_000
"""Most actions of a schedule; one of them takes some hundred bytes until it is built and simulated."""

_COUNTS = ("chunks", "group", "pipes", "memory")
_STAGES_A_RANK = {"v": 2}  # of placements; of others as many as the option `chunks` says


def check_sizes(spec: ScheduleSpec, ranks: int, microbatches: int, options: Mapping[str, object]) -> None:
    """Refuses sizes that no action can name, and schedules too large to hold.

    Args:
        spec: What would be built.
        ranks, microbatches: p and m.
        options: The builder's options that were given.

    Raises:
        SizeError: A size is out of range, or no whole number.
    """
    for size, name, flag, most in (
        (ranks, "rank", "-p", MAX_STAGE),
        (microbatches, "microbatch", "-m", MAX_MICROBATCH),
    ):
        many = "es" if name == "microbatch" else "s"
        what = f"{spec.name} {'on' if name == 'rank' else 'with'} {shown(size)} {name}{many}"
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise SizeError(what, f"give a whole number of {name}{many} ({flag})")
        if size < 1:
            raise SizeError(what, f"give at least 1 {name} ({flag})")
        if size > most:
            raise SizeError(what, f"give at most {most} {name}{many} ({flag})")
    for option in _COUNTS:
        value = options.get(option)
        # An own builder's options are its own affair, whatever they are called.
        if value is not None and spec.placement != "own" and (isinstance(value, bool) or not isinstance(value, int)):
            raise SizeError(
                f"{option} of {spec.name} is {shown(value)}, no whole number", f"give one, as in {FLAGS[option]} 4"
            )
    if _count(options, "pipes") > MAX_PIPE + 1:
        raise SizeError(f"{shown(options['pipes'])} pipes are more than an action can name", "give at most 64")
    chunks = _count(options, "chunks") if "chunks" in options else _STAGES_A_RANK.get(spec.placement, 1)
    if ranks * chunks > MAX_STAGE:
        raise SizeError(
            f"{spec.name} on {ranks} ranks with {shown(chunks)} stages each has more than the {MAX_STAGE} stages "
            "that an action can name",
            "give fewer ranks (-p) or chunks (-v)",
        )
    # A forward and a backward of every stage and microbatch; where the backward is split it is half as much again.
    actions = 2 * ranks * chunks * microbatches
    if actions > MAX_ACTIONS:
        raise SizeError(
            f"{spec.name} on {ranks} ranks with {microbatches} microbatches has at least {actions:,} actions, "
            f"more than the {MAX_ACTIONS:,} that can be built",
            "give fewer ranks (-p) or microbatches (-m)",
        )


def _count(options: Mapping[str, object], name: str) -> int:
    value = options.get(name)
    return value if isinstance(value, int) and value > 0 else 1
