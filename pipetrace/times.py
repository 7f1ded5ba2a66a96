"""Times as people give them, numbers in a unit of their choice, and how long one may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from pipetrace.errors import CostError
from pipetrace.shown import shown

UNITS: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""ns of each."""

MAX_COST = 1_000 * UNITS["s"]
"""ns of the longest action."""

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_MOST_DIGITS = 13  # before the point, of the longest time in ns
_RANGE = "give a time between 0 and 1000 s"
_FILE_HINT = 'give a number, e.g. 1 or 2.5; it is in the file\'s unit, ms unless the file says unit = "us"'


def parse_time(text: str, unit: str = "ms", hint: str = "") -> int:
    """A number in `unit` as ns, rounded to the nearest.

    Args:
        text: The number, in ASCII digits and without separators.
        unit: "ns", "us", "ms" or "s".
        hint: What to do about a text that is no number; the command line's when empty.

    Raises:
        CostError: The text is no finite number, negative or longer than any cost can be, or the unit is unknown.
    """
    if not isinstance(unit, str) or unit not in UNITS:
        raise CostError(f"unknown unit {shown(unit)}", f"units are {', '.join(UNITS)}")
    no_time = CostError(
        f"{shown(text.strip())} is no time", hint or "give a number, e.g. 1 or 2.5; the unit is set by --unit"
    )
    if _NUMBER.fullmatch(text.strip()) is None:
        raise no_time
    try:
        value = Decimal(text.strip())
        if value.is_zero():
            return 0
        if value < 0:
            raise CostError(f"a time of {shown(text.strip())[1:-1]} {unit} is negative", _RANGE)
        # Before any arithmetic: 1e999999999 cannot even be multiplied.
        if value.adjusted() <= _MOST_DIGITS:
            ns = (value * UNITS[unit]).to_integral_value()
            if ns <= 2 * MAX_COST:
                return int(ns)
    except ArithmeticError:
        raise no_time from None
    raise CostError(f"a time of {shown(text.strip())[1:-1]} {unit} is too long", _RANGE)


def table_time(value: Any, unit: str) -> int:
    """A time of a table as ns."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise CostError(f"{shown(value)} is no time", _FILE_HINT)
    if isinstance(value, int) and value.bit_length() > 64:
        # Python refuses to write integers of thousands of digits, which TOML can hold.
        raise CostError(f"a time of {shown(value)} {unit} is too long", _RANGE)
    return parse_time(str(value), unit, _FILE_HINT)


def named_time(what: str, read: Callable[[T, str], int], value: T, unit: str) -> int:
    """A time that `read` reads, in ns.

    Args:
        what: Of what; an error begins with it.
        read: `parse_time` or `table_time`.
        value: The time.
        unit: Its unit.

    Raises:
        CostError: It is no time.
    """
    try:
        return read(value, unit)
    except CostError as error:
        raise CostError(f"{what}: {error.message}", error.hint) from None


def is_count(value: object, most: int | None = None) -> bool:
    """Whether a value is a whole number from 0 to `most`; True and 1.0 are none, an integer of numpy is.

    >>> is_count(3), is_count(True), is_count(1.5), is_count("3"), is_count(3, 2)
    (True, False, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return int(value) >= 0 and (most is None or int(value) <= most)
