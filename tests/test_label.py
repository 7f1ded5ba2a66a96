from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from torch.profiler import ProfilerActivity, profile

import pipetrace
from pipetrace.action import Action, Kind, parse
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff_run import diff_traces
from pipetrace.errors import ActionError, OutputError, ScheduleError
from pipetrace.label import Doing
from pipetrace.timeline import UNKNOWN, Lane
from pipetrace.trace.labels import LabelStyle
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, event, trace_of

UNLABELLED = Path(__file__).parent / "data" / "traces" / "1f1b_pp2_mb4_mlp"
GPIPE = pipetrace.build("gpipe", 2, 1)


@pytest.mark.parametrize(
    ("action", "doing", "text"),
    [
        ("3F2", "compute", "PP:3F2"),
        ("d1:3I2", "compute", "PP:d1:3I2"),
        (Action(Kind.W, 3, 2), "compute", "PP:3W2"),
        ("(0F3;3B1)OVERLAP_F_B", "compute", "PP:(0F3;3B1)OVERLAP_F_B"),
        (parse("(0F3;3B1)OVERLAP_F_B"), "compute", "PP:(0F3;3B1)OVERLAP_F_B"),
        ("2REDUCE_GRAD", "compute", "PP:2REDUCE_GRAD"),
        ("1RECV_F3", "post", "POST:1RECV_F3"),
        ("1RECV_F3", "wait", "WAIT:1RECV_F3"),
    ],
)
def test_the_profiler_sees_the_label(action: str, doing: Doing, text: str) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler, pipetrace.label(action, doing):
        pass
    assert text in [event.name for event in profiler.events()]


@pytest.mark.parametrize(
    ("action", "doing", "says"),
    [
        ("3X2", "compute", "3X2"),
        ("1RECV_F3", "compute", "is a transfer"),
        ("3F2", "wait", "cannot be waited"),
        ("(0F3;3B1)OVERLAP_F_B", "post", "cannot be posted"),
        ("3F2", "rest", "'rest' is nothing"),
    ],
)
def test_what_is_no_label_is_refused(action: str, doing: str, says: str) -> None:
    with pytest.raises(ActionError, match=says):
        pipetrace.label(action, doing)  # type: ignore[arg-type]


class Profiled:
    """A profile that is ready: what two ranks of GPipe did, as torch writes it."""

    def __init__(self, rank: int, extra: str = "") -> None:
        labels = [("0F0", 0, 10), ("0B0", 40, 50)] if rank == 0 else [("1F0", 12, 20), ("1B0", 20, 38)]
        events = [event(f"PP:{text}", start, end) for text, start, end in labels]
        if extra:
            events.append(event(extra, 60, 61))
        self.trace = trace_of(rank, 2, events)

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text("  " + json.dumps(self.trace).replace('"#', "").replace('#"', ""))


def test_a_handler_s_folder_needs_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "RUN"
    for rank in (1, 0):
        pipetrace.trace_handler(folder, GPIPE, rank)(Profiled(rank))
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank0_trace.json.gz", "rank1_trace.json.gz", "schedule.csv",
    ]  # fmt: skip
    recording = read_recording([folder])
    assert recording.run is not None
    assert (recording.run.schedule, recording.run.workload) == ("gpipe", "own loop")
    assert [found.labels for found in recording.found] == [LabelStyle.PIPETRACE] * 2
    assert recording.common_clock
    run = diff_traces([folder])
    assert "fitted" in run.costs_from
    assert [run.diff.ideal.makespan, run.diff.measured.makespan] == [36, 50]
    # Known costs are the ideal's.
    costs = Costs(StageCosts(5, 6, 7))
    for rank in (0, 1):
        pipetrace.trace_handler(folder, GPIPE, rank, costs=costs, name="mine")(Profiled(rank))
    assert diff_traces([folder]).costs == costs
    with gzip.open(folder / "rank1_trace.json.gz") as file:
        own = json.load(file)["pipetrace"]
    assert (own["rank"], own["replica"], own["pipeline_rank"], own["run"]["workload"]) == (1, 0, 1, "mine")
    assert len(own["clock"]["probes"]) == 2


def test_replicas_count_one_after_the_other(tmp_path: Path) -> None:
    pipetrace.trace_handler(tmp_path, GPIPE, 3, replicas=2)(Profiled(1))
    with gzip.open(tmp_path / "rank3_trace.json.gz") as file:
        own = json.load(file)["pipetrace"]
    assert (own["rank"], own["replica"], own["pipeline_rank"]) == (3, 1, 1)
    assert not (tmp_path / "schedule.csv").exists()


@pytest.mark.parametrize("marked", [True, False])
def test_labels_of_compute_alone_leave_waits_waits(marked: bool, tmp_path: Path) -> None:
    """What torch recorded of receives is laid against them, in the order of both; the first lies before any label."""
    plan = pipetrace.build("1f1b", 2, 4)
    plain = read_recording([UNLABELLED], plan)
    (expected,) = plain.steps
    for rank in (0, 1):
        with gzip.open(UNLABELLED / f"rank{rank}.json.gz") as file:
            trace = json.load(file)
        base = int(trace["baseTimeNanoseconds"])
        if not marked:
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "STEP"]
        mine = expected.where(expected.is_compute & (expected.rank == rank))
        for tile in mine:
            begins = (expected.epoch + tile.start - base) / 1000
            more = {"ts": begins, "dur": tile.duration / 1000, "pid": 1, "tid": 1, "cat": "user_annotation"}
            trace["traceEvents"].append({"ph": "X", "name": f"PP:{tile.action}"} | more)
        profiled = Profiled(rank)
        profiled.trace = trace
        pipetrace.trace_handler(tmp_path, plan, rank)(profiled)
    labelled = read_recording([tmp_path])
    assert [found.labels for found in labelled.found] == [LabelStyle.PIPETRACE] * 2
    (step,) = labelled.steps
    for lane in (Lane.RECV, Lane.SEND):
        one, other = (of.from_first_action().where(of.lane == lane) for of in (step, expected))
        assert len(one) == 8
        for column in ("code", "end", "posted", "waited"):
            known = getattr(other, column) != UNKNOWN
            assert (known == (getattr(one, column) != UNKNOWN)).all()
            # Times went through floats of µs.
            assert (abs(getattr(one, column) - getattr(other, column))[known] <= 2_000).all(), column
    assert (step.waited[step.lane == Lane.RECV] != UNKNOWN).any()


def test_between_two_unmarked_steps_receives_are_the_next_one_s(tmp_path: Path) -> None:
    did = {
        0: [("PP:0F0", 0, 10), ("gloo:send", 10, 20), ("gloo:recv", 20, 39), ("PP:0B0", 40, 50)],
        1: [("gloo:recv", 1, 12), ("PP:1F0", 13, 20), ("PP:1B0", 20, 36), ("gloo:send", 37, 40)],
    }
    for rank, ranges in did.items():
        events = [event(name, at + start, at + end) for at in (0, 100, 200) for name, start, end in ranges]
        (tmp_path / f"rank{rank}.json").write_text(dump(trace_of(rank, 2, events)), encoding="utf-8")
    recording = read_recording([tmp_path])
    assert not recording.missing
    for step in recording.steps:
        start = {str(tile.action): tile.start for tile in step}
        zero = start["0F0"]
        transfers = step.where(step.lane != Lane.COMPUTE)
        assert sorted((str(tile.action), tile.start - zero, tile.end - zero) for tile in transfers) == [
            ("0RECV_B0", 37, 39), ("0SEND_F0", 10, 12), ("1RECV_F0", 10, 12), ("1SEND_B0", 37, 39),
        ]  # fmt: skip


@pytest.mark.parametrize(("begins", "told"), [(1, True), (9, False)])
def test_waits_inside_of_labels_of_one_s_own_are_told(begins: int, told: bool, tmp_path: Path) -> None:
    events = [event("gloo:recv", 3, 8), event("fwd", begins, 20), event("bwd", 20, 36)]
    (tmp_path / "rank1.json").write_text(dump(trace_of(1, 2, events)), encoding="utf-8")
    recording = read_recording([tmp_path], labels=["fwd", "bwd"])
    assert any("1 receives were posted and waited for inside of labels" in note for note in recording.notes) == told


def test_torch_s_runtime_keeps_its_style(tmp_path: Path) -> None:
    for rank in (0, 1):
        pipetrace.trace_handler(tmp_path, GPIPE, rank)(
            Profiled(rank, extra="PP:0SEND_F0" if rank == 0 else "PP:1RECV_F0")
        )
    assert [found.labels for found in read_recording([tmp_path]).found] == [LabelStyle.RUNTIME] * 2


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="no rank 2"):
        pipetrace.trace_handler(tmp_path, GPIPE, 2)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        pipetrace.trace_handler(tmp_path / "file", GPIPE, 0)(Profiled(0))

    class Empty(Profiled):
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text("[]")

    with pytest.raises(OutputError, match="torch wrote no object"):
        pipetrace.trace_handler(tmp_path, GPIPE, 1)(Empty(1))
    assert not list(tmp_path.glob(".rank*"))
