"""Times as people read them."""

from __future__ import annotations

import pytest

from pipetrace.report.units import MICROSECONDS, MILLISECONDS, SECONDS, TimeUnit, percent, size_unit_for, unit_for


@pytest.mark.parametrize(
    ("span", "unit"),
    [
        (0, MILLISECONDS),
        (1, MICROSECONDS),
        (999_999, MICROSECONDS),
        (1_000_000, MILLISECONDS),
        (9_999_999_999, MILLISECONDS),
        (10_000_000_000, SECONDS),
    ],
)
def test_the_unit_follows_the_span(span: int, unit: TimeUnit) -> None:
    assert unit_for(span) == unit


@pytest.mark.parametrize(
    ("ns", "text"), [(0, "0"), (27_000_000, "27"), (1_234_567, "1.235"), (-400, "0"), (1_000_000_000_000, "1,000,000")]
)
def test_numbers_have_no_more_decimals_than_they_need(ns: int, text: str) -> None:
    assert MILLISECONDS.number(ns) == text


def test_signs_stand_where_asked_for() -> None:
    assert MILLISECONDS.text(1_500_000, signed=True) == "+1.5 ms"
    assert MILLISECONDS.text(-1_500_000, signed=True) == "-1.5 ms"
    assert MILLISECONDS.text(0, signed=True) == "0 ms"
    assert percent(-0.05, signed=True) == "-5.0 %"


def test_a_column_has_one_number_of_decimals() -> None:
    assert MILLISECONDS.column([1_000_000, 2_500_000]) == ["1.0", "2.5"]
    assert MILLISECONDS.column([1_000_001, 0], signed=True) == ["+1.000", "0.000"]
    assert MILLISECONDS.column([]) == []


def test_sizes_in_the_unit_of_the_largest() -> None:
    assert size_unit_for(3 << 40, "bytes").column([3 << 40, 1 << 39]) == ["3.00", "0.50"]
    assert size_unit_for((1 << 30) - 1, "bytes").name == "MiB"
    assert size_unit_for(0, "bytes").column([0]) == ["0"]
    assert size_unit_for(5000, "chunks").column([5000, 1.5]) == ["5,000.00", "1.50"]


def test_the_unit_can_tell_what_stands_beside() -> None:
    assert unit_for(117_000_000, [1_000_000, 0]) is MILLISECONDS
    assert unit_for(12_000_000, [100_000]) is MILLISECONDS
    assert unit_for(12_000_000, [10_000]) is MILLISECONDS  # 0.01 ms is all of it
    assert unit_for(12_000_000, [10_500]) is MICROSECONDS
    assert unit_for(12 * SECONDS.ns, [1_250_000]) is MILLISECONDS
    assert unit_for(12 * SECONDS.ns, [1]) is MICROSECONDS
    assert unit_for(12 * SECONDS.ns, [2 * SECONDS.ns]) is SECONDS
