"""Times and sizes as people read them: one unit a report, so that its numbers can be compared at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit in which a report gives its times.

    Args:
        name: As printed.
        ns: Its length.
    """

    name: str
    ns: int

    def number(self, ns: int | float, *, signed: bool = False) -> str:
        """`ns` in this unit, without the unit, to three decimals at most.

        >>> MILLISECONDS.number(1_250_000), MILLISECONDS.number(2_000_000, signed=True)
        ('1.25', '+2')
        """
        text = f"{ns / self.ns:{'+' if signed else ''},.{MOST_DECIMALS}f}".rstrip("0").rstrip(".")
        return "0" if text in ("+0", "-0") else text

    def text(self, ns: int | float, *, signed: bool = False) -> str:
        """`ns` with the unit.

        >>> MILLISECONDS.text(1_250_000)
        '1.25 ms'
        """
        return f"{self.number(ns, signed=signed)} {self.name}"

    def decimals(self, values: Iterable[int]) -> int:
        """The decimals that a column of values in ns needs, three at most."""
        needed = 0
        for value in values:
            while needed < MOST_DECIMALS and value * 10**needed % self.ns:
                needed += 1
            if needed == MOST_DECIMALS:
                break
        return needed

    def column(self, values: Sequence[int], *, signed: bool = False) -> list[str]:
        """A column of numbers with the same decimals, so that the points stand below each other.

        >>> MILLISECONDS.column([1_000_000, 250_000])
        ['1.00', '0.25']
        """
        decimals = self.decimals(values)
        return [f"{value / self.ns:{'+' if signed and value else ''},.{decimals}f}" for value in values]


MICROSECONDS, MILLISECONDS, SECONDS = TimeUnit("µs", 1_000), TimeUnit("ms", 1_000_000), TimeUnit("s", 1_000_000_000)


def unit_for(span: int, beside: Iterable[int] = ()) -> TimeUnit:
    """The unit in which a span of that many ns reads best.

    Args:
        span: ns.
        beside: ns of other times in the same unit; it is smaller where its decimals cannot tell them.
    """
    wanted = (
        SECONDS if span >= 10 * SECONDS.ns else MILLISECONDS if span >= MILLISECONDS.ns or not span else MICROSECONDS
    )
    beside = list(beside)

    def tells(unit: TimeUnit) -> bool:
        # All of it, or three digits at least.
        return all(10 * ns >= unit.ns or ns * 10**MOST_DECIMALS % unit.ns == 0 for ns in beside)

    return next((unit for unit in (SECONDS, MILLISECONDS) if unit.ns <= wanted.ns and tells(unit)), MICROSECONDS)


def percent(share: float, *, signed: bool = False) -> str:
    """A share as a percentage.

    >>> percent(0.125), percent(0.5, signed=True)
    ('12.5 %', '+50.0 %')
    """
    return f"{100 * share:{'+' if signed else ''},.1f} %"


@dataclass(frozen=True, slots=True)
class SizeUnit:
    """A unit in which a report gives its sizes.

    Args:
        name: As printed.
        size: What one is, in the unit in which sizes are computed: bytes, or chunks.
    """

    name: str
    size: int

    def column(self, values: Sequence[float]) -> list[str]:
        """A column of numbers, with two decimals where one of them needs some.

        >>> size_unit_for(3 << 30, "bytes").column([3 << 30, 3 << 29]), size_unit_for(4, "chunks").column([4, 2])
        (['3.00', '1.50'], ['4', '2'])
        """
        decimals = 0 if all(value % self.size == 0 for value in values) else 2
        return [f"{value / self.size:,.{decimals}f}" for value in values]


def size_unit_for(most: float, unit: str) -> SizeUnit:
    """The unit in which sizes of up to `most` read best; `unit` is "bytes" or "chunks", in which they are computed."""
    if unit != "bytes":
        return SizeUnit(unit, 1)
    for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024**power:
            return SizeUnit(name, 1024**power)
    return SizeUnit("bytes", 1)
