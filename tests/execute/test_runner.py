"""Whole runs, one process a rank."""

from __future__ import annotations

import gzip
import itertools
import json
import platform
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipetrace
from pipetrace.action import Action, Kind, is_all_to_all, parse, parse_action
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.diff_run import diff_traces
from pipetrace.errors import OutputError, RunError, ScheduleError
from pipetrace.execute import RunConfig, RunResult, run
from pipetrace.execute.inject import parse_injections
from pipetrace.execute.launcher import Launcher
from pipetrace.execute.runner import describe, longest_action
from pipetrace.metrics import all_to_alls
from pipetrace.part_costs import PART_NAMES, LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, add_communication, expand_moe
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import RUN_FILE, SCHEDULE_FILE, read_run_info, trace_name
from pipetrace.trace.torch_csv import read_csv
from pipetrace.trace.torch_profiler import read_recording
from pipetrace.waiting import Wait
from tests.execute.processes import own_descendants

MS = 1_000_000
SMALL = RunConfig("transformer", hidden=16, heads=2, sequence=8, batch=2, steps=1, warmup=0, check=True)


def trace_of(folder: Path, rank: int) -> dict[str, Any]:
    with gzip.open(folder / trace_name(rank)) as file:
        trace: dict[str, Any] = json.load(file)
    return trace


def labels_of(trace: dict[str, Any]) -> list[tuple[float, float, str]]:
    """(start, end, name) of every label of ours, in µs, by start."""
    kinds = ("ProfilerStep#", "PP:", "POST:", "WAIT:")
    return sorted(
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in trace["traceEvents"]
        if event.get("cat") == "user_annotation" and event["name"].startswith(kinds)
    )


def test_the_folder_holds_a_whole_run(sleep_run: RunResult) -> None:
    names = sorted(path.name for path in sleep_run.folder.iterdir())
    assert names == sorted([RUN_FILE, SCHEDULE_FILE, *(trace_name(rank) for rank in range(4))])
    assert read_run_info(sleep_run.folder) == sleep_run.info
    schedule = pipetrace.build("zb-h1", 4, 6)
    assert read_csv(sleep_run.folder / SCHEDULE_FILE).schedule.same_order(schedule)


def test_the_metadata_say_what_was_run_and_when(sleep_run: RunResult) -> None:
    for rank in range(4):
        trace = trace_of(sleep_run.folder, rank)
        own = trace["pipetrace"]
        assert (own["schema"], own["rank"], own["replica"]) == (1, rank, 0)
        assert own["run"] == sleep_run.info.to_dict()
        assert own["clock"]["host"]
        (first, last) = own["clock"]["probes"]
        assert sleep_run.info.started < first[0] < last[0]
        assert 0 < first[1] < last[1]
        assert trace["distributedInfo"]["rank"] == rank
        assert trace["distributedInfo"]["world_size"] == 4


def test_each_step_has_every_label_once_in_list_order(sleep_run: RunResult) -> None:
    schedule = pipetrace.build("zb-h1", 4, 6)
    for rank in range(4):
        labels = labels_of(trace_of(sleep_run.folder, rank))
        steps = [label for label in labels if label[2].startswith("ProfilerStep#")]
        assert [name for _, _, name in steps] == ["ProfilerStep#0", "ProfilerStep#1"]
        for start, end, _ in steps:
            inside = [label for label in labels if start <= label[0] < end and not label[2].startswith("Profiler")]
            assert all(label[1] <= end for label in inside)
            # One after the other: no wait sits in a compute label.
            assert all(one[1] <= two[0] for one, two in itertools.pairwise(inside))
            texts = [name for _, _, name in inside]
            assert len(set(texts)) == len(texts)
            assert [t[3:] for t in texts if t.startswith("PP:")] == [str(action) for action in schedule.actions(rank)]
            last = max(i for i, t in enumerate(texts) if t.startswith("PP:"))
            waits = [parse_action(t[5:]) for t in texts if t.startswith("WAIT:")]
            sends = [a for a in waits if a.kind in (Kind.SEND_F, Kind.SEND_B)]
            assert all(texts.index(f"WAIT:{a}") > last for a in sends)
            posts = {t[5:] for t in texts if t.startswith("POST:")}
            assert posts == {str(a) for a in waits}
            ends = (rank > 0) + (rank < 3)
            assert len(posts) == 2 * 6 * ends


def test_compute_takes_what_it_was_told(sleep_run: RunResult) -> None:
    took: dict[str, list[float]] = {"F": [], "I": [], "W": []}
    for rank in range(4):
        for start, end, name in labels_of(trace_of(sleep_run.folder, rank)):
            if name.startswith("PP:"):
                action = parse(name[3:])
                assert isinstance(action, Action)
                took[action.kind.name].append(end - start)
    for kind, nominal in (("F", 3000), ("I", 2000), ("W", 1000)):
        assert len(took[kind]) == 2 * 4 * 6
        # Three decimals are as far as a trace goes. A busy machine delays many actions, but not all.
        assert nominal - 0.01 <= min(took[kind]) <= 3 * nominal


def test_every_message_was_the_right_one(sleep_run: RunResult) -> None:
    assert sleep_run.check is not None
    assert sleep_run.check.passed
    assert [rank.compared for rank in sleep_run.check.ranks] == [6, 12, 12, 6]


@pytest.mark.parametrize(("name", "dtype"), [("1f1b", "float32"), ("zb-h1", "float64")])
def test_the_transformer_agrees_with_a_single_process_to_the_last_bit(tmp_path: Path, name: str, dtype: str) -> None:
    told: list[str] = []
    before = own_descendants()
    config = replace(SMALL, dtype=dtype)
    result = run(pipetrace.build(name, 3, 4), config, tmp_path, told.append)
    assert result.check is not None
    assert result.check.bit_equal, result.check.text
    assert result.check.passed
    assert told[0] == "starting 3 ranks"
    assert any(line.startswith("all ranks are connected after ") for line in told)
    assert told[-1] == "step 1 of 1 done"
    assert own_descendants() <= before


def test_ranks_that_hold_neighbouring_stages_run_too(tmp_path: Path, launcher: Launcher) -> None:
    lists = [
        "0F0 0F1 3F0 3I0 3F1 3I1 3W0 0I0 3W1 0W0 0B1",
        "1F0 2F0 1F1 2F1 2I0 1I0 2B1 1I1 2W0 1W1 1W0",
    ]
    placement = Placement(2, ((0, 1, 1, 0),), "v")
    schedule = Schedule.from_actions("v", placement, 2, [[parse(a) for a in text.split()] for text in lists])
    result = run(schedule, SMALL, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.bit_equal, result.check.text


def test_two_pipes_and_an_overlapped_pair_bring_every_message_to_its_place(tmp_path: Path, launcher: Launcher) -> None:
    placement = Placement(2, ((0, 1), (1, 0)), "mirrored")
    lists = [
        "0F0 d1:1F2 d1:1B2 0F1 (d1:1F3;0B0)OVERLAP_F_B d1:1B3 0B1",
        "d1:0F2 1F0 1B0 d1:0F3 (1F1;d1:0B2)OVERLAP_F_B 1B1 d1:0B3",
    ]
    schedule = Schedule.from_actions("both", placement, 4, [[parse(a) for a in text.split()] for text in lists])
    config = RunConfig(costs=Costs(StageCosts(MS, MS, MS)), steps=2, check=True)
    result = run(schedule, config, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    texts = [name for _, _, name in labels_of(trace_of(tmp_path, 0))]
    assert texts.count("PP:(d1:1F3;0B0)OVERLAP_F_B") == 2
    assert texts.count("WAIT:d1:1RECV_F3") == 2


def test_the_pipes_replicas_add_their_gradients_up(tmp_path: Path, launcher: Launcher) -> None:
    result = run(pipetrace.build("dualpipe", 4, 8), SMALL, tmp_path, launcher=launcher)
    assert result.check is not None
    # Two addends make the same sum in either order.
    assert result.check.bit_equal, result.check.text
    assert all(rank.compared for rank in result.check.ranks)
    texts = [[name for _, _, name in labels_of(trace_of(tmp_path, rank))] for rank in (0, 3)]
    assert [text[-2:] for text in texts] == [
        ["PP:0REDUCE_GRAD", "PP:d1:3REDUCE_GRAD"],
        ["PP:d1:0REDUCE_GRAD", "PP:3REDUCE_GRAD"],
    ]


MOE = RunConfig(
    "moe", hidden=8, heads=2, sequence=4, batch=2, experts=4, expert_hidden=6, ep=2, steps=1, warmup=0, check=True
)


def test_replicas_share_out_the_experts(tmp_path: Path, launcher: Launcher) -> None:
    result = run(pipetrace.build("dualpipev", 2, 4), MOE, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.bit_equal, result.check.text
    assert [rank.rank for rank in result.check.ranks] == [0, 1, 2, 3]
    assert result.info.replicas == 2
    own = trace_of(tmp_path, 3)["pipetrace"]
    assert (own["rank"], own["replica"], own["pipeline_rank"]) == (3, 1, 1)
    recording = read_recording([tmp_path])
    assert (recording.ranks, recording.replicas, recording.missing) == (2, 2, ())
    (step,) = recording.steps
    for replica in range(2):
        assert step.of_replica(replica).is_compute.sum() == len(pipetrace.build("dualpipev", 2, 4))
    run_diff = diff_traces([tmp_path])
    assert (run_diff.diff.missing, run_diff.diff.extra, run_diff.diff.reordered) == ((), (), ())
    assert dict(run_diff.facts)["Replica"].startswith("0 of 2; ranks are its pipeline ranks")


@pytest.mark.parametrize(("name", "order"), [("dualpipev", MoeOrder.DUALPIPE), ("moe-1f1b", MoeOrder.ALIGNED)])
def test_parts_of_layers_leave_what_one_process_leaves(
    tmp_path: Path, launcher: Launcher, name: str, order: MoeOrder
) -> None:
    schedule = expand_moe(pipetrace.build(name, 2, 4), Overlap(order, 2))
    result = run(schedule, replace(MOE, layers=2), tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.bit_equal, result.check.text
    run_diff = diff_traces([tmp_path])
    assert (run_diff.diff.missing, run_diff.diff.extra, run_diff.diff.reordered) == ((), (), ())
    assert run_diff.schedule.same_order(schedule)
    assert run_diff.fitted
    assert run_diff.costs.layer is not None
    assert run_diff.costs.layer.attn.F > 0


@pytest.mark.parametrize("one_process", [False, True])
def test_all_to_alls_are_measured_on_a_lane_of_their_own(one_process: bool, tmp_path: Path, launcher: Launcher) -> None:
    layer = LayerCosts(*(PartCosts(4 * MS, 4 * MS, 4 * MS if part in ("attn", "mlp") else 0) for part in PART_NAMES))
    schedule = expand_moe(pipetrace.build("dualpipev", 2, 4), Overlap(MoeOrder.ALIGNED), Costs(layer=layer))
    config = RunConfig(costs=Costs(layer=layer), ep=2, steps=1, warmup=0, check=True, message_bytes=16)
    config = replace(config, one_process=one_process)
    result = run(schedule, config, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    assert all(rank.compared for rank in result.check.ranks)
    (step,) = read_recording([tmp_path]).steps
    for replica in range(2):
        found = all_to_alls(step, replica)
        assert set(found.tiles.code.tolist()) == set(schedule.code[is_all_to_all(schedule.code)].tolist())
        assert (found.duration >= 4 * MS).all()
        assert found.hidden.sum() > 0
        assert (found.tiles.posted <= found.tiles.start).all()
    # Between processes one starts when the last replica has come to it. In one process it is begun by then.
    starts = [np.sort(all_to_alls(step, replica).tiles.start).tolist() for replica in range(2)]
    assert one_process or starts[0] == starts[1]


def test_parts_that_cannot_be_run_are_refused(tmp_path: Path) -> None:
    schedule = expand_moe(pipetrace.build("1f1b", 2, 2))
    for config, says in (
        (SMALL, "which transformer does not have"),
        (replace(MOE, layers=2), "1 a stage, but the workload has 2"),
        (RunConfig(wait=Wait.DATAFLOW), "order on two lanes is fixed"),
    ):
        with pytest.raises(RunError, match=says):
            run(schedule, config, tmp_path)
    with pytest.raises(RunError, match="whole stages of sleep have no all-to-alls"):
        run(pipetrace.build("1f1b", 2, 2), RunConfig(ep=2), tmp_path)
    with pytest.raises(RunError, match="whole stages, whose all-to-alls lie inside them"):
        run(pipetrace.build("1f1b", 2, 2), replace(MOE, one_process=True), tmp_path)


def test_pipes_and_replicas_add_their_gradients_up(tmp_path: Path, launcher: Launcher) -> None:
    # Four addends: within rounding, in whatever order they came.
    result = run(pipetrace.build("dualpipe", 2, 4), replace(MOE, capacity=1.0), tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    texts = [[name for _, _, name in labels_of(trace_of(tmp_path, rank))][-2:] for rank in (0, 2)]
    assert texts == [["PP:0REDUCE_GRAD", "PP:d1:1REDUCE_GRAD"]] * 2


def test_listed_transfers_are_left_out_and_an_earlier_run_leaves_nothing_behind(
    tmp_path: Path, launcher: Launcher
) -> None:
    config = RunConfig(costs=Costs(StageCosts(0, 0, 0)), steps=1, warmup=0, check=True)
    schedule = pipetrace.build("gpipe", 2, 2)
    told: list[str] = []
    # Sends and receives in the list are left out, and that is said.
    result = run(add_communication(schedule), config, tmp_path, told.append, launcher=launcher)
    assert result.check is not None
    assert result.check.passed
    assert "sends and receives are left out" in told[0]
    assert read_csv(tmp_path / SCHEDULE_FILE).schedule.same_order(schedule)
    run(pipetrace.build("gpipe", 1, 2), config, tmp_path, launcher=launcher)
    assert (tmp_path / trace_name(0)).exists()
    assert not (tmp_path / trace_name(1)).exists()
    assert read_run_info(tmp_path).ranks == 1


def test_what_cannot_be_run_is_refused_before_anything_starts(tmp_path: Path) -> None:
    told: list[str] = []
    config = RunConfig(costs=Costs(pair=PairCost(MS, MS, MS)))
    with pytest.raises(RunError, match="overlapped pair"):
        run(pipetrace.build("dualpipe", 2, 4), config, tmp_path / "a", told.append)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError):
        run(pipetrace.build("gpipe", 2, 2), RunConfig(), tmp_path / "file", told.append)
    assert not told
    assert not (tmp_path / "a").exists()


def test_a_run_is_described_with_what_changes_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "TCP")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("UNRELATED", "x")
    info = describe(pipetrace.build("gpipe", 2, 3), RunConfig("transformer", layers=2))
    assert (info.ranks, info.microbatches, info.costs_are_exact) == (2, 3, False)
    assert info.options["wait"] == "prefetch"
    dataflow = describe(pipetrace.build("gpipe", 2, 3), RunConfig(wait=Wait.DATAFLOW, reorder=False))
    assert (dataflow.options["wait"], dataflow.options["reorder"]) == ("dataflow", False)
    assert info.options["layers"] == 2
    assert info.options["cpus"] >= 1
    assert info.versions["torch"] == version("torch")
    assert info.versions["python"] == platform.python_version()
    assert info.environment["GLOO_DEVICE_TRANSPORT"] == "TCP"
    assert info.environment["OMP_NUM_THREADS"] == "3"
    assert "UNRELATED" not in info.environment


def test_an_action_may_take_longer_than_the_timeout() -> None:
    costs = Costs(StageCosts(1 * MS, 2 * MS, 3 * MS), stages={1: StageCosts(1 * MS, 1 * MS, 1 * MS, 7000 * MS)})
    schedule = pipetrace.build("1f1b", 2, 2)
    assert longest_action(schedule, RunConfig(costs=costs)) == pytest.approx(7.0)
    assert longest_action(schedule, RunConfig("transformer", costs=costs)) == 0.0
    # A pair shows no progress between its halves.
    pairs = RunConfig(costs=Costs(StageCosts(1000 * MS, 2000 * MS, 3000 * MS)))
    assert longest_action(pipetrace.build("dualpipe", 2, 4), pairs) == pytest.approx(6.0)


@pytest.mark.parametrize("name", ["zbv", "chimera"])
def test_without_tags_over_channels_the_gradients_are_right(name: str, tmp_path: Path, launcher: Launcher) -> None:
    """What NCCL is given, over gloo: a process group for each direction between two ranks."""
    config = replace(SMALL, ordered=True)
    result = run(pipetrace.build(name, 2, 4), config, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    assert result.info.options["channel"] == "ordered"


@pytest.mark.parametrize("name", ["zbv", "chimera"])
def test_all_ranks_in_one_process(name: str, tmp_path: Path, launcher: Launcher) -> None:
    config = replace(SMALL, one_process=True)
    result = run(pipetrace.build(name, 2, 4), config, tmp_path, launcher=launcher)
    assert result.check is not None
    assert result.check.passed, result.check.text
    assert [path.name for path in tmp_path.glob("rank*")] == ["rank0_trace.json.gz"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ordered": True}, "nothing is sent"),
        ({"wait": Wait.INLINE}, "nothing is posted"),
        ({"inject": parse_injections(["rank0:gap+1ms"])}, "faults are given to processes"),
    ],
)
def test_what_one_process_cannot_do(options: dict[str, Any], why: str) -> None:
    with pytest.raises(RunError, match=why):
        RunConfig(one_process=True, **options)


def test_caps_that_cannot_be_kept_are_refused_before_anything_is_there(tmp_path: Path) -> None:
    config = RunConfig(wait=Wait.DATAFLOW, caps=(1, 1))
    with pytest.raises(ScheduleError, match="rank 0: a cap of 1 chunks has no room for the list order, which holds 2"):
        run(pipetrace.build("1f1b", 2, 4), config, tmp_path / "run")
    assert not list(tmp_path.iterdir())
