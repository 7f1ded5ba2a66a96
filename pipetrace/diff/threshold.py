"""Thresholds for CI: `bubble:+5%` fails a diff whose measured bubble is more than that over the ideal's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipetrace.diff.waterfall import ranks_text
from pipetrace.errors import ConfigError, TraceError
from pipetrace.shown import shown
from pipetrace.times import UNITS

if TYPE_CHECKING:
    from pipetrace.diff.analysis import Analysis
    from pipetrace.diff.reference import References

_THRESHOLD = re.compile(r"(?P<what>[a-z-]+):\+?(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>%|ns|us|ms|s)?")
_HINT = "write bubble:+5%, makespan:+10%, makespan:+2ms, slip:+1ms, residual:+1%, overhead:+10% or missing:0"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is measured, and what it is held against; ns, shares or counts.

    Args:
        value: The figure.
        whole: What a percentage is of; None where the value is a share itself, so that per cent are points.
        limit_unit: "ns", "share" or "count".
    """

    value: float
    whole: float | None
    limit_unit: str


def _bubble(of: Analysis) -> Figure:
    ideal, measured = of.of.bubble_fractions
    return Figure(measured - ideal, None, "share")


def _makespan(of: Analysis) -> Figure:
    return Figure(of.of.measured.makespan - of.of.ideal.makespan, of.of.ideal.makespan, "ns")


def _slip(of: Analysis) -> Figure:
    return Figure(float(of.of.slip.max(initial=0)), of.of.ideal.makespan, "ns")


def _overhead(of: Analysis) -> Figure:
    ref = _references(of)
    return Figure(ref.overhead, ref.fitted, "ns")


def _imbalance(of: Analysis) -> Figure:
    ref = _references(of)
    return Figure(ref.imbalance, ref.fitted - ref.imbalance, "ns")


def _references(of: Analysis) -> References:
    if of.references is None:
        raise TraceError(
            f"without {ranks_text(of.absent)} neither overhead nor imbalance can be told",
            "give the traces of all ranks, or leave these thresholds out",
        )
    return of.references


def _residual(of: Analysis) -> Figure:
    return Figure(abs(of.waterfall.residual), of.of.measured.makespan, "ns")


def _missing(of: Analysis) -> Figure:
    return Figure(len(of.of.missing) + len(of.of.extra), None, "count")


def _reordered(of: Analysis) -> Figure:
    return Figure(len(of.of.reordered), None, "count")


_FIGURES: Mapping[str, tuple[Callable[[Analysis], Figure], str]] = {
    "bubble": (_bubble, "the bubble fraction grows by"),
    "makespan": (_makespan, "the makespan grows by"),
    "slip": (_slip, "the largest slip is"),
    "overhead": (_overhead, "the overhead over the fitted ideal is"),
    "imbalance": (_imbalance, "unequal stages add"),
    "residual": (_residual, "the replay of what was measured is off by"),
    "missing": (_missing, "missing and extra actions:"),
    "reordered": (_reordered, "reordered actions:"),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A figure and its limit.

    Args:
        text: As it was written.
        what: Which figure.
        limit: ns, a count, or a share where `relative`.
        relative: Whether the limit was given in per cent.
    """

    text: str
    what: str
    limit: float
    relative: bool

    def crossed(self, of: Analysis) -> str | None:
        """What is said where an analysis is over the limit; None where it is not.

        Raises:
            TraceError: The figure needs ranks that were not recorded.
        """
        figure, words = _FIGURES[self.what][0](of), _FIGURES[self.what][1]
        value = figure.value
        if self.relative and figure.whole is not None:
            value = value / figure.whole if figure.whole else (float("inf") if value > 0 else 0.0)
        if value <= self.limit:
            return None
        if self.relative:
            points = " points" if figure.limit_unit == "share" else " %"
            return f"{words} {100 * value:.2f}{points}, more than {100 * self.limit:g}{points}"
        if figure.limit_unit == "ns":
            return f"{words} {value / 1e6:.3f} ms, more than {self.limit / 1e6:g} ms"
        return f"{words} {value:g}, more than {self.limit:g}"


def parse_threshold(text: str) -> Threshold:
    """Reads a threshold.

    Args:
        text: `FIGURE:+LIMIT`, the limit with `%`, with a unit of time, or as a count.

    Raises:
        ConfigError: It is none.
    """
    match = _THRESHOLD.fullmatch(text.strip())
    if match is None or match["what"] not in _FIGURES:
        raise ConfigError(f"--fail-on {shown(text)} is no threshold", _HINT)
    number, unit = float(match["number"]), match["unit"]
    what = match["what"]
    counted, shared = what in ("missing", "reordered"), what == "bubble"
    if (unit is None) is not counted or (shared and unit != "%"):
        how = "as a count" if counted else "in %" if shared else "in % or as a time"
        raise ConfigError(f"--fail-on {shown(text)}: {what} is given {how}", _HINT)
    if unit == "%":
        return Threshold(text, what, number / 100, True)
    return Threshold(text, what, number * (UNITS[unit] if unit else 1), False)
