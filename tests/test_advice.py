from __future__ import annotations

import pytest

from pipetrace.advice import advise, bytes_needed, gib
from pipetrace.candidates import candidate_of, swept
from pipetrace.compare import Setting, compare
from pipetrace.costs import Costs
from pipetrace.metrics import MemorySizes, StageSizes

GIB = 2**30
SIZES = MemorySizes(StageSizes(GIB // 2, GIB // 2, parameters=4 * GIB), unit="bytes")
SETTING = Setting(8, 32, Costs(), {})
ALL = [candidate_of(name) for name in ("gpipe", "1f1b", "zb-h1", "dualpipe", "interleaved:v=4")]


def test_bytes_needed() -> None:
    of = {row.candidate.label: row.figures for row in compare(ALL, [SETTING]).rows}
    needed = {label: bytes_needed(one, SIZES) / GIB for label, one in of.items() if one is not None}
    assert needed["gpipe"] == 32 + 4
    assert needed["1f1b"] == 8 + 4
    # Two replicas' parameters.
    assert needed["dualpipe"] == pytest.approx(9 + 8, abs=1)
    assert needed["interleaved v=4"] == 9.75 + 4


def test_both_conventions_and_the_gradient_count() -> None:
    (row,) = compare([candidate_of("zb-h1")], [SETTING]).rows
    assert row.figures is not None
    needed = {
        name: bytes_needed(row.figures, MemorySizes(StageSizes(**{name: 1}), unit="bytes"))
        for name in ("activation_freed_at_input", "activation_freed_at_weight", "gradient")
    }
    assert needed == {"activation_freed_at_input": 8, "activation_freed_at_weight": 8, "gradient": 8}


def test_the_fastest_that_fits_and_what_a_faster_one_costs() -> None:
    comparison = compare(ALL, [SETTING])
    (line,) = advise(comparison, SIZES, 13 * GIB)
    assert line == (
        "2 of 5 fit 13.0 GiB; zb-h1 (12.0 GiB) is the fastest of them; "
        "interleaved v=4 would be 1.7 % faster but needs 13.8 GiB."
    )
    assert advise(comparison, SIZES, 40 * GIB) == [
        "5 of 5 fit 40.0 GiB; interleaved v=4 (13.8 GiB) is the fastest of them."
    ]
    assert advise(comparison, SIZES, GIB) == ["none fits 1.0 GiB; 1f1b needs least, 12.0 GiB."]


def test_ties_are_named() -> None:
    tied = [candidate_of(name) for name in ("1f1b", "interleaved-zb", "zbv")]
    (line,) = advise(compare(tied, [SETTING]), SIZES, 40 * GIB)
    assert line == "3 of 3 fit 40.0 GiB; interleaved-zb (12.0 GiB) and zbv (12.0 GiB) are the fastest of them."


def test_a_line_for_each_value_of_a_sweep() -> None:
    variable, settings = swept("m=8,32", SETTING, "ms")
    comparison = compare([candidate_of("1f1b"), candidate_of("dualpipe")], settings, variable=variable)
    lines = advise(comparison, SIZES, 40 * GIB)
    assert [line.partition(";")[0] for line in lines] == ["m = 8: 1 of 1 fit 40.0 GiB", "m = 32: 2 of 2 fit 40.0 GiB"]


def test_sizes_for_people() -> None:
    assert gib(3 * GIB // 2) == "1.5 GiB"
