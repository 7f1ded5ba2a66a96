"""Costs of parts as text: the command line's and the tables of TOML and JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipetrace.action import ALL_TO_ALL_PARTS
from pipetrace.errors import CostError
from pipetrace.part_costs import PART_NAMES, LayerCosts, PartCosts
from pipetrace.shown import shown
from pipetrace.times import named_time, parse_time, table_time

_GROUPS: Mapping[str, tuple[str, ...]] = {
    "a2a": tuple(name for name, part in PART_NAMES.items() if part in ALL_TO_ALL_PARTS)
} | {name: (name,) for name in PART_NAMES}
_ITEM = re.compile(r"\s*([a-z0-9]+)(?:\.([FIW]))?\s*=\s*([^=]*)")
_HINT = "write attn=1,attn.W=0.5,mlp=2,a2a=1.5; parts are attn, dispatch, mlp, combine, and a2a for both all-to-alls"


def kinds_of(name: str) -> tuple[str, ...]:
    """What a part has: F, I and, where it has weights, W."""
    return ("F", "I") if PART_NAMES[name] in ALL_TO_ALL_PARTS else ("F", "I", "W")


def parse_parts(text: str, *, unit: str = "ms", base: LayerCosts | None = None) -> LayerCosts:
    """Reads `attn=1,attn.W=0.5,mlp=2,a2a=1.5`, in any order.

    A part's name alone gives all it has (F, I and W), with a kind that one; what is said of one kind holds over what
    is said of all, and what is said of dispatch or combine over what is said of a2a.

    Args:
        text: The costs.
        unit: "ns", "us", "ms" or "s".
        base: What is not named costs; 1 of the unit when None.

    Raises:
        CostError: The text cannot be read.
    """
    given: dict[tuple[str, str], int] = {}
    for item in text.split(",") if text.strip() else ():
        match = _ITEM.fullmatch(item)
        if match is None or match[1] not in _GROUPS:
            raise CostError(f"cannot read the cost {shown(item.strip())} of a part", _HINT)
        name, kind = match[1], match[2] or ""
        if (name, kind) in given:
            raise CostError(f"{shown(item.split('=')[0].strip())} is given twice in {shown(text)}")
        if kind == "W" and kind not in kinds_of(_GROUPS[name][0]):
            raise CostError(f"{name} has no weights, so it has no W", "leave it out")
        given[name, kind] = named_time(f"{name}.{kind}" if kind else name, parse_time, match[3], unit)
    layer = base or unit_layer(unit)
    for name, kind in sorted(given, key=lambda key: (bool(key[1]), key[0] != "a2a")):
        for part in _GROUPS[name]:
            of = replace(getattr(layer, part), **{k: given[name, kind] for k in kinds_of(part) if kind in ("", k)})
            layer = replace(layer, **{part: of})
    return layer


def unit_layer(unit: str) -> LayerCosts:
    """A layer whose every F, I and W costs 1 of a unit.

    Raises:
        CostError: The unit is unknown.
    """
    one = parse_time("1", unit)
    return LayerCosts(**{name: PartCosts(**dict.fromkeys(kinds_of(name), one)) for name in PART_NAMES})


def parts_to_dict(layer: LayerCosts) -> dict[str, dict[str, int]]:
    """A layer's costs as plain tables of ns; `parts_from_dict` reads them back equal."""
    return {name: {kind: getattr(getattr(layer, name), kind) for kind in kinds_of(name)} for name in PART_NAMES}


def parts_from_dict(table: Any, unit: str, *, base: LayerCosts | None = None, name: str = "parts") -> LayerCosts:
    """A layer's costs from tables as `parts_to_dict` makes them, or as people write them::

        [parts]
        attn = { F = 1, I = 1, W = 0.5 }
        mlp = 2                              # F, I and W alike
        a2a = 1.5                            # dispatch and combine

    Args:
        table: The table, or what stands in its place.
        unit: Of its numbers.
        base: What is not named costs; 1 of the unit when None.
        name: What errors call it.

    Raises:
        CostError: An entry is unknown, or no time.
    """
    if not isinstance(table, Mapping):
        raise CostError(
            f"{name} of the costs is no table", "write [parts] and below it attn = { F = 1, I = 1, W = 0.5 }"
        )
    if wrong := set(table) - set(_GROUPS):
        raise CostError(f"unknown entry {shown(min(map(str, wrong)))} in {name} of the costs", _FILE_HINT)
    layer = base or unit_layer(unit)
    for entry in sorted(table, key=lambda entry: entry != "a2a"):
        of = table[entry]
        for part in _GROUPS[entry]:
            kinds = kinds_of(part)
            values = of if isinstance(of, Mapping) else dict.fromkeys(kinds, of)
            if wrong := set(values) - set(kinds):
                raise CostError(
                    f"unknown entry {shown(min(map(str, wrong)))} in {name}.{entry} of the costs",
                    f"entries are {', '.join(kinds)}",
                )
            whole = not isinstance(of, Mapping)
            times = {
                kind: named_time(f"{name}.{entry}" + f".{kind}" * (not whole), table_time, value, unit)
                for kind, value in values.items()
            }
            layer = replace(layer, **{part: replace(getattr(layer, part), **times)})
    return layer


_FILE_HINT = f"entries are {', '.join(_GROUPS)}; each a time, or a table as {{ F = 1, I = 1, W = 0.5 }}"
