"""The figures as `--json` has them."""

from __future__ import annotations

import json

from hypothesis import given

from pipetrace.costs import Costs
from pipetrace.metrics import bubbles, sizes_from_dict
from pipetrace.report.summary import schedule_summary, schedules_json
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.strategies import Sizes, costs, sizes


@given(sizes(ranks=4, microbatches=8), costs())
def test_what_is_split_sums_to_the_whole(size: Sizes, given: Costs) -> None:
    schedule = size.build()
    timeline = simulate(schedule, given)
    of = json.loads(json.dumps(schedule_summary(schedule, timeline, given)))
    idle = bubbles(timeline)
    assert of["global_idle_ns"] == list(idle.global_idle)
    for key in ("global_idle_ns", "in_span_idle_ns"):
        assert [sum(parts) for parts in zip(*of["phases"][key].values(), strict=True)] == of[key]
    assert [sum(parts) for parts in zip(*of["idle_by_cause"].values(), strict=True)] == of["global_idle_ns"]
    assert sum(step["end_ns"] - step["start_ns"] for step in of["critical_path"]) == of["makespan_ns"]
    assert of["memory"]["peak"] == of["peak_in_flight"]["release_at_weight_grad"]


def test_keys_and_values_as_the_docs_have_them() -> None:
    schedule, given = build("1f1b", 2, 2), Costs()
    of = schedule_summary(schedule, simulate(schedule, given), given)
    assert of["phases"]["steady_start_ns"] == [4_000_000, 2_000_000]
    assert of["phases"]["drain_start_ns"] == [4_000_000, 5_000_000]
    assert of["phases"]["global_idle_ns"] == {
        "warm_up": [2_000_000, 1_000_000],
        "steady": [0, 0],
        "drain": [1_000_000, 2_000_000],
    }
    assert of["memory"]["unit"] == "chunks"
    assert "sizes" not in of["memory"]
    assert set(of["idle_by_cause"]) == {
        f"{name}_ns" for name in ("nothing_yet", "input", "gradient", "local", "transfer", "host", "nothing_left")
    }
    assert of["critical_path"][1] == {
        "action": "1F0",
        "rank": 1,
        "transfer": False,
        "start_ns": 1_000_000,
        "end_ns": 2_000_000,
        "reason": "input",
        "cause": "waits for F0 of stage 0 on rank 0",
    }
    assert list(of)[-1] == "costs"
    assert schedules_json([of])["schema"] == 1


def test_without_causes() -> None:
    schedule, given = build("1f1b", 2, 2), Costs()
    of = schedule_summary(schedule, simulate(schedule, given), given, causes=False)
    assert "critical_path" not in of
    assert "idle_by_cause" not in of
    assert "phases" in of


def test_memory_in_bytes() -> None:
    schedule, given = build("1f1b", 2, 4), Costs()
    sizes = sizes_from_dict(
        {"activation_freed_at_weight": 100, "parameters": "1KiB", "stages": {"1": {"parameters": 0}}}
    )
    memory = schedule_summary(schedule, simulate(schedule, given), given, sizes=sizes)["memory"]
    assert (memory["unit"], memory["parameters"], memory["peak"]) == ("bytes", [1024, 0], [1224, 100])
    assert memory["sizes"]["stages"]["1"]["activation_freed_at_weight"] == 100
    assert memory["mean_in_flight"]["release_at_weight_grad"] == memory["mean_in_flight"]["release_at_input_grad"]
