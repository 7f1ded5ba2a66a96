"""What actions cost, in integer nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from pipetrace.action import NO_ACTION, IntArray, Kind, code_kind, code_stage
from pipetrace.errors import CostError
from pipetrace.schedule import Schedule

UNITS: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units in which people give times, in ns."""

MAX_COST = 1_000 * UNITS["s"]


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Costs of one stage's actions for one microbatch, in ns.

    Args:
        F: Forward.
        I: Input gradient.
        W: Weight gradient.
        B: Full backward; I + W when None.

    Raises:
        CostError: A cost is negative, or over 1,000 s.
    """

    F: int
    I: int  # noqa: E741 - the field's own letter
    W: int
    B: int | None = None

    def __post_init__(self) -> None:
        for letter, value in (("F", self.F), ("I", self.I), ("W", self.W), ("B", self.B)):
            if value is not None and not 0 <= value <= MAX_COST:
                raise CostError(f"{letter} costs {value} ns", "give a time between 0 and 1000 s")

    @property
    def full_backward(self) -> int:
        """ns of B."""
        return self.I + self.W if self.B is None else self.B


@dataclass(frozen=True, slots=True)
class PairCost:
    """Cost of an overlapped pair, in ns from its start.

    Args:
        duration: To its end.
        forward_ready: To when the forward's output can leave.
        backward_ready: To when the input gradient can leave.
    """

    duration: int
    forward_ready: int
    backward_ready: int

    def __post_init__(self) -> None:
        if not 0 <= self.duration <= 2 * MAX_COST:
            raise CostError(f"FB costs {self.duration} ns", "give a time between 0 and 2000 s")
        if not (0 <= self.forward_ready <= self.duration and 0 <= self.backward_ready <= self.duration):
            raise CostError("an overlapped pair's outputs must be ready between its start and its end")


UNIT_STAGE = StageCosts(F=UNITS["ms"], I=UNITS["ms"], W=UNITS["ms"])


@dataclass(frozen=True, slots=True)
class Costs:
    """What a schedule's actions and transfers cost.

    Args:
        default: Costs of every stage that `stages` does not name; F = I = W = 1 ms.
        stages: Costs of single stages.
        pair: Cost of an overlapped pair; when None it lasts F + B of its stages, with both outputs at its end.
        p2p: ns from an output's being ready to its arrival on another rank; within a rank it is free.

    Raises:
        CostError: `p2p` is negative, or over 1,000 s.
    """

    default: StageCosts = UNIT_STAGE
    stages: Mapping[int, StageCosts] = field(default_factory=dict)
    pair: PairCost | None = None
    p2p: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.p2p <= MAX_COST:
            raise CostError(f"a transfer costs {self.p2p} ns", "give a time between 0 and 1000 s")

    def of(self, stage: int) -> StageCosts:
        """The costs of one stage."""
        return self.stages.get(stage, self.default)

    def durations(self, schedule: Schedule) -> IntArray:
        """ns of every row of a schedule; shape (n,)."""
        table = np.zeros((5, schedule.stages), dtype=np.int64)
        for stage in range(schedule.stages):
            of = self.of(stage)
            table[Kind.F, stage], table[Kind.B, stage] = of.F, of.full_backward
            table[Kind.I, stage], table[Kind.W, stage] = of.I, of.W
        duration: IntArray = table[code_kind(schedule.code), code_stage(schedule.code)]
        paired = schedule.partner != NO_ACTION
        if paired.any():
            partner = schedule.partner[paired]
            both = duration[paired] + table[code_kind(partner), code_stage(partner)]
            duration[paired] = both if self.pair is None else self.pair.duration
        return duration

    def ready(self, schedule: Schedule, duration: IntArray) -> tuple[IntArray, IntArray]:
        """ns from every row's start to its forward output and to its input gradient; two arrays of shape (n,)."""
        if self.pair is None:
            return duration, duration
        paired = schedule.partner != NO_ACTION
        return (
            np.where(paired, self.pair.forward_ready, duration),
            np.where(paired, self.pair.backward_ready, duration),
        )


def parse_time(text: str, unit: str = "ms") -> int:
    """A number in `unit` as ns, rounded to the nearest.

    Raises:
        CostError: The text is no finite number, or the unit is unknown.
    """
    if unit not in UNITS:
        raise CostError(f"unknown unit {unit!r}", f"units are {', '.join(UNITS)}")
    try:
        value = Decimal(text.strip())
        if not value.is_finite() or abs(value) > MAX_COST:
            raise InvalidOperation
        return int((value * UNITS[unit]).to_integral_value())
    except InvalidOperation:
        raise CostError(f"{text!r} is no time", "give a number, e.g. 1 or 2.5; the unit is set by --unit") from None


_COST = re.compile(r"\s*([A-Za-z]+)\s*=\s*([^=]*)")


def parse_costs(text: str, *, unit: str = "ms", p2p: int = 0) -> Costs:
    """Reads `F=1,I=1,W=1,B=2,FB=2.5`, in any order, each letter at most once.

    F, I and W that are not given cost 1 of the unit. B is I + W unless given.

    Args:
        text: The costs.
        unit: "ns", "us", "ms" or "s".
        p2p: ns of a transfer.

    Raises:
        CostError: The text cannot be read.
    """
    given: dict[str, int] = {}
    for item in text.split(",") if text.strip() else ():
        match = _COST.fullmatch(item)
        letter = match[1].upper() if match else ""
        if match is None or letter not in ("F", "I", "W", "B", "FB"):
            raise CostError(f"cannot read the cost {item.strip()!r}", "write costs as F=1,I=1,W=1,B=2,FB=2.5")
        if letter in given:
            raise CostError(f"the cost of {letter} is given twice in {text!r}")
        given[letter] = parse_time(match[2], unit)
    one = UNITS[unit] if unit in UNITS else parse_time("1", unit)
    stage = StageCosts(given.get("F", one), given.get("I", one), given.get("W", one), given.get("B"))
    pair = PairCost(given["FB"], given["FB"], given["FB"]) if "FB" in given else None
    return Costs(default=stage, pair=pair, p2p=p2p)


def costs_to_dict(costs: Costs) -> dict[str, Any]:
    """Costs as plain tables of ns, for TOML and JSON; `costs_from_dict` reads them back equal."""

    def table(stage: StageCosts) -> dict[str, int]:
        return {letter: value for letter in "FIWB" if (value := getattr(stage, letter)) is not None}

    out: dict[str, Any] = {"unit": "ns", "default": table(costs.default), "p2p": costs.p2p}
    if costs.stages:
        out["stages"] = {str(stage): table(of) for stage, of in sorted(costs.stages.items())}
    if costs.pair is not None:
        out["pair"] = {name: getattr(costs.pair, name) for name in ("duration", "forward_ready", "backward_ready")}
    return out


def costs_from_dict(table: Mapping[str, Any]) -> Costs:
    """Costs from tables as `costs_to_dict` makes them, or as people write them::

        unit = "ms"                              # of every number here; default ms
        p2p = 0.1
        default = { F = 1, I = 1, W = 1 }        # and B, where it is not I + W
        stages.0 = { F = 1.2 }                   # what differs from the default; B is I + W again with a new I or W
        pair = { duration = 2.5, forward_ready = 2.0, backward_ready = 2.5 }

    Raises:
        CostError: Something is missing, unknown, or no number.
    """
    unit = table.get("unit", "ms")
    unknown = set(table) - {"unit", "p2p", "default", "stages", "pair"}
    if unknown:
        raise CostError(f"unknown entry {min(unknown)!r} in the costs", "entries are unit, p2p, default, stages, pair")

    def numbers(name: str, given: Any, allowed: Sequence[str]) -> dict[str, int]:
        if not isinstance(given, Mapping):
            raise CostError(f"{name} of the costs is no table", f"write {name} = {{ {allowed[0]} = 1 }}")
        wrong = set(given) - set(allowed)
        if wrong:
            raise CostError(
                f"unknown entry {min(map(str, wrong))!r} in {name} of the costs", f"entries are {', '.join(allowed)}"
            )
        return {key: parse_time(str(value), unit) for key, value in given.items()}

    one = parse_time("1", unit)
    default = {"F": one, "I": one, "W": one} | numbers("default", table.get("default", {}), "FIWB")

    def of_stage(given: dict[str, int]) -> StageCosts:
        # The default's B belongs to the default's I and W.
        inherited = {key: value for key, value in default.items() if key != "B" or not {"I", "W"} & set(given)}
        return StageCosts(**inherited | given)

    stages = table.get("stages", {})
    if not isinstance(stages, Mapping) or not all(str(key).isdecimal() for key in stages):
        raise CostError("stages of the costs is no table of stage numbers", "write stages.0 = { F = 1.2 }")
    fields = ("duration", "forward_ready", "backward_ready")
    pair = numbers("pair", table["pair"], fields) if "pair" in table else None
    if pair is not None and "duration" not in pair:
        raise CostError("pair of the costs has no duration")
    return Costs(
        default=StageCosts(**default),
        stages={int(key): of_stage(numbers(f"stages.{key}", of, "FIWB")) for key, of in stages.items()},
        pair=None if pair is None else PairCost(**{name: pair.get(name, pair["duration"]) for name in fields}),
        p2p=parse_time(str(table.get("p2p", 0)), unit),
    )
