from __future__ import annotations

from typing import Any

from pipetrace import build
from pipetrace.action import Kind, Part
from pipetrace.metrics.overlap import all_to_alls
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.overlap import InParts, compared_overlap, name_of, overlap_dict, overlap_lines, overlap_tables
from pipetrace.report.units import MILLISECONDS
from pipetrace.simulate import simulate
from pipetrace.timeline import Timeline
from tests.passes.test_expand_moe import MS, layer, run_of
from tests.report.test_terminal import console, printed


def uneven() -> tuple[Timeline, InParts]:
    """attn 0.5, mlp 2, all-to-alls 1, no W, worked out by hand in tests/passes/test_expand_moe.py."""
    whole, overlap, costs = run_of(8), Overlap(MoeOrder.DUALPIPE), layer(attn=0.5, mlp=2, weight=0)
    parts = InParts(overlap, costs, whole)
    return simulate(expand_moe(whole, overlap, costs), costs), parts


def text_of(tables: list[Any]) -> str:
    to = console()
    for table in tables:
        to.print(table)
    return printed(to)


def test_as_tables() -> None:
    timeline, parts = uneven()
    text = text_of(overlap_tables(timeline, MILLISECONDS, parts))
    assert "all-to-all         36 ms, of which exposed 12 ms (33.3 %)" in text
    assert "pairs limited      8 by order" in text
    assert "steady pair        6 ms: compute 5 ms, all-to-all 4 ms (0.8 of it)" in text
    assert "hides fully up to  0.4 of the compute" in text
    assert "in whole stages    57 ms (+0.0 %)" in text
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert rows["0"] == ["0", "36", "24", "12", "33.3", "%"]
    assert rows["combine I"][:4] == ["combine", "I", "8", "7.5"]
    assert rows["dispatch I"][2:] == ["8", "0.0", "mlp", "F", "100.0", "%"]


def test_nothing_has_no_shares() -> None:
    """Of parts that take no time there is neither a share exposed nor a ratio, and no error."""
    overlap, whole = Overlap(MoeOrder.DUALPIPE), run_of(2)
    for cost, in_stages in ((1, "18 ms (+0.0 %)"), (0, "0 ms")):
        costs = layer(attn=cost, mlp=cost, weight=cost, all_to_all=0)
        parts = InParts(overlap, costs, whole)
        timeline = simulate(expand_moe(whole, overlap, costs), costs)
        lines = dict(overlap_lines(all_to_alls(timeline), MILLISECONDS, parts))
        assert overlap_tables(timeline, MILLISECONDS, parts)
        assert (lines["all-to-all"], lines["in whole stages"]) == ("0 ms", in_stages)
        assert ("of it" in lines["steady pair"], "hides fully up to" in lines) == (bool(cost), bool(cost))


def test_without_pairs_the_order_is_said_to_hide_nothing() -> None:
    overlap, costs, whole = Overlap(MoeOrder.DUALPIPE), layer(), build("1f1b", 2, 4)
    lines = dict(
        overlap_lines(
            all_to_alls(simulate(expand_moe(whole, overlap, costs), costs)),
            MILLISECONDS,
            InParts(overlap, costs, whole),
        )
    )
    assert lines["all-to-all"].endswith("(100.0 %)")
    assert lines["pairs"] == "none: no forward beside a backward, so no order hides anything"


def test_as_values() -> None:
    timeline, parts = uneven()
    out: dict[str, Any] = overlap_dict(timeline, parts)
    assert (out["all_to_all_ns"], out["hidden_ns"], out["exposed_ns"]) == ([36 * MS], [24 * MS], [12 * MS])
    assert out["by_kind"]["dispatch I"]["hidden_behind_ns"] == {"mlp F": 8 * MS}
    assert out["steady_pair"] == {"period_ns": 6 * MS, "compute_ns": 5 * MS, "all_to_all_ns": 4 * MS}
    assert (out["order"], out["layers"], out["hides_up_to"]) == ("dualpipe", 1, 0.4)
    assert out["whole_stages_makespan_ns"] == timeline.makespan
    assert [pair["limit"] for pair in out["pairs"]] == ["order"] * 8
    assert out["pairs"][1] | {"start_ns": 0, "end_ns": 0} == {
        "pair": "(0F2;0B1)OVERLAP_F_B",
        "rank": 0,
        "start_ns": 0,
        "end_ns": 0,
        "compute_ns": 5 * MS,
        "all_to_all_ns": 4 * MS,
        "exposed_ns": MS,
        "limit": "order",
    }


def test_two_side_by_side() -> None:
    """As many all-to-alls, hidden as well as they can be and not: what limits the pairs is told of both."""
    whole, overlap, costs = run_of(8), Overlap(MoeOrder.ALIGNED), layer()
    schedule = expand_moe(whole, overlap, costs)
    both = simulate(schedule, costs), simulate(schedule, layer(all_to_all=1.5))
    text = text_of(compared_overlap(*both, MILLISECONDS, schedule, "before"))
    assert "pairs limited, before    8 by compute" in text
    assert "pairs limited, measured  8 by communication" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("0 ")]
    assert rows == [["0", "36", "54", "32", "40", "4", "14"]]
    assert compared_overlap(simulate(whole), simulate(whole), MILLISECONDS, whole) == []


def test_a_timeline_alone() -> None:
    timeline, _ = uneven()
    assert "pairs" not in overlap_dict(timeline)
    assert "steady pair" not in text_of(overlap_tables(timeline, MILLISECONDS))
    whole = simulate(run_of(2))
    assert overlap_dict(whole) == {}
    assert overlap_tables(whole, MILLISECONDS) == []


def test_names() -> None:
    assert (name_of((Kind.I, Part.COMBINE)), name_of((Kind.W, None))) == ("combine I", "W")
