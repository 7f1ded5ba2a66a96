from __future__ import annotations

import math

from pipetrace.execute.result import CheckReport, RankCheck, worst_of


def report(*ranks: RankCheck) -> CheckReport:
    return CheckReport(ranks, "gradients", 1e-5, "sums in another order")


def test_equal_bits_pass() -> None:
    good = report(RankCheck(0, 5), RankCheck(1, 5))
    assert good.passed
    assert good.bit_equal
    assert good.text == "check passed: 10 gradients on 2 ranks, all equal to the last bit."


def test_an_error_within_the_tolerance_passes_and_is_told() -> None:
    near = report(RankCheck(0, 5), RankCheck(1, 5, 1e-7, 2e-6, bit_equal=False, worst="up.weight of stage 1"))
    assert near.passed
    assert not near.bit_equal
    assert "2e-06 relative, 1e-07 absolute (rank 1, up.weight of stage 1)" in near.text
    assert "sums in another order" in near.text


def test_that_there_was_nothing_to_compare_is_said() -> None:
    assert report(RankCheck(0, 0)).passed
    assert report(RankCheck(0, 0)).text == "check passed: there are no gradients to compare."


def test_a_larger_error_a_loss_a_nan_or_no_rank_fails() -> None:
    assert not report(RankCheck(0, 5, 1.0, 1e-3, bit_equal=False)).passed
    assert not report(RankCheck(0, 5, loss_difference=1.0)).passed
    assert not report(RankCheck(0, 5, max_rel_error=math.nan)).passed
    assert not report(RankCheck(0, 5, max_rel_error=math.inf)).passed
    assert not report().passed
    assert "FAILED" in report(RankCheck(0, 5, 1.0, 1e-3, bit_equal=False)).text


def test_ranks_of_one_process_are_all_counted() -> None:
    one = worst_of([RankCheck(0, 5), RankCheck(1, 7)])
    assert report(one).text == "check passed: 12 gradients on 2 ranks, all equal to the last bit."
    assert "on 1 rank," in report(RankCheck(0, 5)).text
    worst = report(worst_of([RankCheck(0, 5), RankCheck(1, 7, 1e-7, 2e-6, bit_equal=False)]))
    assert "12 gradients on 2 ranks; largest error" in worst.text
    assert "(rank 1)" in worst.text
