"""Which schedules fit into a device's memory, and which of them is the fastest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipetrace.compare import Comparison, Figures
from pipetrace.errors import CostError
from pipetrace.shown import shown

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_MOST_DIGITS = 40
_PREFIXES = ("", "k", "m", "g", "t")


def parse_bytes(text: str) -> int:
    """A size as bytes.

    >>> parse_bytes("40GiB"), parse_bytes("1.5 MB"), parse_bytes("512")
    (42949672960, 1500000, 512)

    Raises:
        CostError: It is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > _MOST_DIGITS:
        raise CostError(f"{shown(text)} is no size", "give bytes, or a number with KiB, MiB, GiB or TiB, e.g. 40GiB")
    unit = (match[2] or "").lower()
    factor: int = (1024 if unit.endswith("i") else 1000) ** _PREFIXES.index(unit[:1])
    return round(float(match[1]) * factor)


def gib(size: float) -> str:
    """Bytes as people compare them with a device's memory.

    >>> gib(42949672960)
    '40.0 GiB'
    """
    return f"{size / 2**30:,.1f} GiB"


@dataclass(frozen=True, slots=True)
class StageBytes:
    """What a stage of the plain pipeline, one a rank, takes in memory, in bytes.

    Args:
        activation_freed_at_input: What a microbatch's F takes and its I (or B) frees.
        activation_freed_at_weight: What its F takes and its W (or B) frees.
        gradient: The output gradient, held from I to W, or while B runs.
        parameters: Weights, their gradients and the optimiser's state.
    """

    activation_freed_at_input: int = 0
    activation_freed_at_weight: int = 0
    gradient: int = 0
    parameters: int = 0

    @classmethod
    def from_dict(cls, table: Any) -> StageBytes:
        """From the table `[memory]` of a costs file::

            [memory]
            activation_freed_at_input = "1GiB"
            activation_freed_at_weight = "0.5GiB"
            parameters = "12GiB"

        Raises:
            CostError: It cannot be read.
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(table, Mapping) or set(table) - set(known) or not table:
            raise CostError("[memory] of the costs cannot be read", f"its entries are {', '.join(known)}")
        for name, size in table.items():
            # An integer of thousands of digits, which TOML can hold, cannot even be written out.
            huge = isinstance(size, int) and size.bit_length() > 64
            if huge or isinstance(size, bool) or not isinstance(size, int | float | str):
                raise CostError(f"{name} of [memory] is {shown(size)}, no size", f'write {name} = "12GiB"')
        return cls(**{name: parse_bytes(str(size)) for name, size in table.items()})

    def needed(self, of: Figures) -> float:
        """Bytes on the fullest rank; at most, since the three peaks need not be at one time."""
        peaks = zip(of.chunks.release_at_input_grad, of.chunks.release_at_weight_grad, strict=True)
        activations = max(
            at_i * self.activation_freed_at_input
            + at_w * self.activation_freed_at_weight
            + max(1, at_w - at_i) * self.gradient
            for at_i, at_w in peaks
        )
        return float(activations * of.size) + of.parameters * self.parameters


def advise(comparison: Comparison, sizes: StageBytes, limit: int) -> list[str]:
    """A line for each setting: how many fit, which of them is the fastest, and what memory it costs to be faster.

    Args:
        comparison: What is judged.
        sizes: Of the model.
        limit: Bytes that a rank has.
    """
    return [
        (f"{comparison.variable} = {setting.label}: " if comparison.variable else "")
        + _line([(row.candidate.label, row.figures) for row in comparison.at(setting) if row.figures], sizes, limit)
        for setting in comparison.settings
    ]


def _line(built: list[tuple[str, Figures]], sizes: StageBytes, limit: int) -> str:
    if not built:
        return "none can be built."
    fitting = [(label, of) for label, of in built if sizes.needed(of) <= limit]
    fastest = min(built, key=lambda one: one[1].makespan)
    if not fitting:
        label, of = min(built, key=lambda one: sizes.needed(one[1]))
        return f"none fits {gib(limit)}; {label} needs least, {gib(sizes.needed(of))}."
    label, of = min(fitting, key=lambda one: (one[1].makespan, sizes.needed(one[1])))
    text = f"{len(fitting)} of {len(built)} fit {gib(limit)}; {label} is the fastest of them ({gib(sizes.needed(of))})"
    if fastest[1].makespan < of.makespan:
        shorter = 1 - fastest[1].makespan / of.makespan
        text += f"; {fastest[0]} would be {100 * shorter:.1f} % faster but needs {gib(sizes.needed(fastest[1]))}"
    return text + "."
