"""How large the things are that a rank holds: activations, output gradients, parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any

from pipetrace.action import Kind
from pipetrace.errors import CostError
from pipetrace.shown import shown
from pipetrace.times import is_count

MAX_SIZE = 16 << 40
"""16 TiB: half a million chunks of that size still add up in 64 bits."""

BYTE_SUFFIXES: Mapping[str, int] = {"B": 1} | {
    f"{letter}{suffix}": base ** (power + 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("KMGT")
}


@dataclass(frozen=True, slots=True)
class StageSizes:
    """Sizes of one stage, in the unit of its `MemorySizes`.

    Args:
        activation_freed_at_input: What one microbatch's F takes and its I (or B) frees.
        activation_freed_at_weight: What its F takes and its W (or B) frees.
        gradient: The output gradient: held from the start of I to the end of W, or while B runs.
        parameters: What the rank holds all the time for each copy of the stage: weights, gradients, optimiser states.

    Raises:
        CostError: A size is negative, over 16 TiB, or no whole number.
    """

    activation_freed_at_input: int = 0
    activation_freed_at_weight: int = 0
    gradient: int = 0
    parameters: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not is_count(value, MAX_SIZE):
                raise CostError(f"{name} takes {shown(value)} bytes", "give a size between 0 and 16TiB")


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Sizes of every stage; as it stands, one chunk an activation, freed at W.

    Args:
        default: Sizes of every stage that `stages` does not name.
        stages: Sizes of single stages.
        unit: "chunks" or "bytes".

    Raises:
        CostError: The unit is neither.
    """

    default: StageSizes = StageSizes(activation_freed_at_weight=1)
    stages: Mapping[int, StageSizes] = field(default_factory=dict)
    unit: str = "chunks"

    def __post_init__(self) -> None:
        if self.unit not in ("chunks", "bytes"):
            raise CostError(f"sizes in {shown(self.unit)}", "the unit is chunks or bytes")

    def of(self, stage: int) -> StageSizes:
        """The sizes of one stage."""
        return self.stages.get(stage, self.default)

    def check_stages(self, stages: int, what: str) -> None:
        """Refuses sizes of a stage that is not there, as `Costs.check_stages` does costs.

        Raises:
            CostError: A single stage's sizes are of none of `stages` stages; `what` has these.
        """
        if any(stage >= stages for stage in self.stages):
            raise CostError(
                f"[memory] names stage {max(self.stages)}, but {what} has {stages} stages, from 0",
                "leave it out of the sizes, or build with as many stages",
            )


ALL_FREED_AT: Mapping[Kind, MemorySizes] = {
    Kind.I: MemorySizes(StageSizes(activation_freed_at_input=1)),
    Kind.W: MemorySizes(),
}
"""The two extremes of what real memory does: an activation is one chunk, all of it freed at I, or at W."""

_ENTRIES = tuple(f.name for f in fields(StageSizes))
_STAGE = re.compile(r"0|[1-9][0-9]{0,5}")
_SIZE = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")
_SUFFIX_BY_LOWER = {suffix.lower(): factor for suffix, factor in BYTE_SUFFIXES.items()}


def parse_size(text: str) -> int:
    """A size as bytes, rounded to the nearest.

    >>> parse_size("1.5GiB"), parse_size("40 MB"), parse_size("4096")
    (1610612736, 40000000, 4096)

    Raises:
        CostError: The text is no size.
    """
    match = _SIZE.fullmatch(text)
    factor = _SUFFIX_BY_LOWER.get(match[2].lower() or "b") if match else None
    try:
        if match is None or factor is None:
            raise InvalidOperation
        value = Decimal(match[1]) * factor
        if value > MAX_SIZE:
            raise InvalidOperation
        return int(value.to_integral_value())
    except InvalidOperation:
        raise CostError(f"{shown(text)} is no size", "give bytes, up to 16TiB, e.g. 4096, 512MB or 1.5GiB") from None


def sizes_from_dict(table: Mapping[str, Any]) -> MemorySizes:
    """Sizes from the `[memory]` table of a costs file::

        [memory]                                  # bytes, or with a suffix: KB MB GB TB, KiB MiB GiB TiB
        activation_freed_at_input = "1.5GiB"      # of one microbatch on one stage
        activation_freed_at_weight = "0.5GiB"
        gradient = 33_554_432
        parameters = "12GiB"                      # of one stage, as long as the step lasts
        stages.0 = { parameters = "14GiB" }       # what differs from the others

    What is left out is 0, and of a single stage as in the others.

    Raises:
        CostError: Something is unknown, or no size.
    """

    def read(name: str, given: Any) -> dict[str, int]:
        if not isinstance(given, Mapping):
            raise CostError(f"{name} is no table", f'write {name} = {{ parameters = "14GiB" }}')
        if wrong := set(given) - set(_ENTRIES):
            raise CostError(
                f"unknown entry {shown(min(map(str, wrong)))} in {name}", f"entries are {', '.join(_ENTRIES)}"
            )
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise CostError(f"{key} of {name} is no size", f'write {key} = "1.5GiB"')
        huge = next((key for key, value in given.items() if isinstance(value, int) and value > MAX_SIZE), None)
        if huge is not None:  # Python refuses to write integers of thousands of digits
            raise CostError(f"{huge} of {name} is more than 16TiB", "give bytes, e.g. 512MB or 1.5GiB")
        return {key: parse_size(str(value)) for key, value in given.items()}

    if not isinstance(table, Mapping):
        raise CostError("memory is no table", 'write [memory] and below it parameters = "12GiB"')
    default = read("memory", {key: value for key, value in table.items() if key != "stages"})
    stages = table.get("stages", {})
    if not isinstance(stages, Mapping) or not all(_STAGE.fullmatch(str(key)) for key in stages):
        raise CostError("stages of memory is no table of stage numbers", 'write stages.0 = { parameters = "14GiB" }')
    return MemorySizes(
        StageSizes(**default),
        {int(key): StageSizes(**default | read(f"stages.{key} of memory", of)) for key, of in stages.items()},
        "bytes",
    )


def sizes_to_dict(sizes: MemorySizes) -> dict[str, Any]:
    """Sizes in bytes as plain tables, for TOML and JSON; `sizes_from_dict` reads them back equal."""
    out: dict[str, Any] = {name: getattr(sizes.default, name) for name in _ENTRIES}
    if sizes.stages:
        out["stages"] = {
            str(stage): {name: getattr(of, name) for name in _ENTRIES} for stage, of in sorted(sizes.stages.items())
        }
    return out
