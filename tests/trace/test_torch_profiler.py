"""From traces to timelines: those of our executor exactly, those of torch as far as they go."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipetrace
from pipetrace.action import Action, Kind, Pair
from pipetrace.costs import Costs
from pipetrace.errors import TraceError
from pipetrace.timeline import UNKNOWN, Lane, Tile, Timeline
from pipetrace.trace.clocks import NOT_ALIGNED
from pipetrace.trace.flows import dependencies
from pipetrace.trace.formats import write_trace
from pipetrace.trace.labels import LabelStyle
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import BASE, START, dump, event, trace_of, write_run

TRACES = Path(__file__).parent.parent / "data" / "traces"


def simulated(name: str = "zb-h1", ranks: int = 3, microbatches: int = 4) -> Timeline:
    costs = pipetrace.parse_costs("F=1.000001,I=0.9,W=1.1", p2p=1_700_001)
    return pipetrace.simulate(pipetrace.build(name, ranks, microbatches), costs)


def compute_of(timeline: Timeline) -> dict[str, tuple[int, int, int]]:
    tiles = timeline.from_first_action()
    return {str(t.action): (t.rank, t.start, t.end) for t in tiles.where(tiles.is_compute)}


def write(folder: Path, rank: int, trace: Any, name: str | None = None) -> Path:
    path = folder / (name or f"rank{rank}.json")
    path.write_text(dump(trace), encoding="utf-8")
    return path


def with_clock(boot_id: str, rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"schema": 1, "rank": rank, "replica": 0, "clock": {"host": "h", "boot_id": boot_id, "probes": []}, **more}


@given(
    st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    st.integers(2, 4),
    st.integers(1, 5),
    st.tuples(*[st.integers(1, 3_000_000)] * 4),
)
@settings(max_examples=25, deadline=None)
def test_an_executed_timeline_comes_back_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, name: str, ranks: int, microbatches: int, times: tuple[int, ...]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    f, i, w, p2p = times
    costs = Costs(default=pipetrace.StageCosts(f, i, w), p2p=p2p)
    ideal = pipetrace.simulate(pipetrace.build(name, ranks, microbatches), costs)
    write_run(folder, ideal, steps=2)
    recording = read_recording([folder])
    assert recording.ranks == ranks
    assert recording.step_names == ("ProfilerStep#0", "ProfilerStep#1")
    assert recording.missing == ()
    assert recording.common_clock
    for step, timeline in enumerate(recording.steps):
        assert compute_of(timeline) == compute_of(ideal)
        assert timeline.epoch + timeline.span[0] == BASE + START + step * 10**9
        for lane in (Lane.SEND, Lane.RECV):
            theirs = {str(t.action): (t.start, t.end) for t in ideal.where(ideal.lane == lane)}
            offset = timeline.span[0]
            mine = {str(t.action): (t.start - offset, t.end - offset) for t in timeline.where(timeline.lane == lane)}
            assert mine == theirs


def test_transfers_start_when_both_sides_have_posted(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 2, [event("PP:0F0", 0, 10), event("POST:0SEND_F0", 12, 14)]))
    late = [event("POST:1RECV_F0", 30, 32), event("WAIT:1RECV_F0", 35, 50), event("PP:1F0", 51, 60)]
    write(tmp_path, 1, trace_of(1, 2, late))
    (timeline,) = read_recording([tmp_path]).steps
    receive = timeline.find(Action(Kind.RECV_F, 1, 0))
    send = timeline.find(Action(Kind.SEND_F, 0, 0))
    assert receive == Tile(Action(Kind.RECV_F, 1, 0), 1, Lane.RECV, 30, 50, posted=30, waited=35)
    assert send == Tile(Action(Kind.SEND_F, 0, 0), 0, Lane.SEND, 30, 50, posted=12)
    assert timeline.epoch == BASE + START


def test_without_common_clocks_each_side_stands_alone(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 2, [event("PP:0F0", 0, 10), event("POST:0SEND_F0", 40, 44)], host_name="a"))
    other = [event("POST:1RECV_F0", 30, 32), event("WAIT:1RECV_F0", 35, 50), event("PP:1F0", 51, 60)]
    write(tmp_path, 1, trace_of(1, 2, other, host_name="b"))
    recording = read_recording([tmp_path])
    assert any(note.startswith(NOT_ALIGNED) for note in recording.notes)
    assert not recording.common_clock
    receive, send = (recording.steps[0].find(Action(k, s, 0)) for k, s in ((Kind.RECV_F, 1), (Kind.SEND_F, 0)))
    assert receive is not None
    assert send is not None
    assert (receive.start, receive.end, receive.posted, receive.waited) == (50, 50, 30, 35)
    assert (send.start, send.end) == (40, 40)


def test_a_start_never_lies_behind_the_end(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 2, [event("PP:0F0", 0, 10), event("POST:0SEND_F0", 70, 71)]))
    other = [event("POST:1RECV_F0", 30, 32), event("WAIT:1RECV_F0", 35, 50), event("PP:1F0", 51, 60)]
    write(tmp_path, 1, trace_of(1, 2, other))
    receive = read_recording([tmp_path]).steps[0].find(Action(Kind.RECV_F, 1, 0))
    assert receive is not None
    assert (receive.start, receive.end) == (50, 50)
    send = read_recording([tmp_path]).steps[0].find(Action(Kind.SEND_F, 0, 0))
    assert send is not None
    assert send.posted is None


@pytest.mark.parametrize(
    ("clocks", "common", "one_boot"),
    [
        ([with_clock("x"), with_clock("x")], True, True),
        ([with_clock("x"), with_clock("y")], False, False),
        ([with_clock(""), with_clock("")], False, False),
        ([with_clock("x"), {}], True, False),
    ],
)
def test_clocks(tmp_path: Path, clocks: list[dict[str, Any]], common: bool, one_boot: bool) -> None:
    for rank, clock in enumerate(clocks):
        write(tmp_path, rank, trace_of(rank, 2, [event(f"PP:{rank}F0", 0, 10)], pipetrace=clock))
    recording = read_recording([tmp_path])
    assert (recording.common_clock, recording.one_boot) == (common, one_boot)


def test_torch_runtime_hides_waits_in_compute(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 2, [event("PP:0F0", 0, 10), event("PP:0SEND_F0", 12, 14)]))
    events = [
        event("PP:1RECV_F0", 2, 5),
        event("gloo:recv", 4, 30),
        event("PP:1F0", 6, 40),
        event("PP:1UNSHARD", 0, 1),
    ]
    write(tmp_path, 1, trace_of(1, 2, events))
    recording = read_recording([tmp_path])
    forward = recording.steps[0].find(Action(Kind.F, 1, 0))
    receive = recording.steps[0].find(Action(Kind.RECV_F, 1, 0))
    assert forward is not None
    assert receive is not None
    assert (forward.start, forward.end) == (30, 40)
    assert (receive.posted, receive.waited, receive.start, receive.end) == (2, 6, 12, 30)
    assert recording.found[1].labels is LabelStyle.RUNTIME
    assert recording.found[1].counts == {"F": 1, "RECV_F": 1, "UNSHARD": 1}
    assert any("waits for receives inside" in note for note in recording.notes)
    assert any("stage 1: a forward but no backward of microbatch 0" in line for line in recording.missing)


def test_pairs_are_one_tile(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 1, [event("PP:(0F1;0B0)OVERLAP_F_B", 5, 9)]))
    (timeline,) = read_recording([tmp_path]).steps
    assert timeline.tile(0).action == Pair(Action(Kind.F, 0, 1), Action(Kind.B, 0, 0))


def test_first_of_doubled_actions_is_kept(tmp_path: Path) -> None:
    events = [event("PP:0F0", 20, 30), event("PP:0F0", 5, 9), event("PP:0B0", 40, 41)]
    write(tmp_path, 0, trace_of(0, 1, events))
    # Where nothing marks the steps, the first of them was given up.
    assert read_recording([tmp_path]).step_names == ("step 1",)
    write(tmp_path, 0, trace_of(0, 1, [*events, event("STEP", 0, 50)]))
    recording = read_recording([tmp_path])
    assert recording.step_names == ("STEP",)
    assert compute_of(recording.steps[0])["0F0"] == (0, 0, 4)
    assert any("0F0 stood more than once" in note for note in recording.notes)


def replicas_of(ranks: int, replicas: int) -> dict[str, Any]:
    info = RunInfo("t", ranks, 1, "moe", Costs(), False, 1, replicas=replicas)
    return with_clock("b", run=info.to_dict())


def test_replicas_lie_side_by_side_and_all_to_alls_start_when_all_have_come(tmp_path: Path) -> None:
    for rank, (begins, waits) in enumerate([(10, 14), (10, 40), (30, 50), (20, 30)]):
        stage = rank % 2
        events = [
            event(f"PP:{stage}F0@0.attn", 0, 5),
            event(f"PP:{stage}F0@0.dispatch", begins, 60, tid=8),
            event(f"WAIT:{stage}F0@0.dispatch", waits, 60),
            event(f"PP:{stage}F0@0.mlp", 60, 70),
        ]
        write(tmp_path, rank, trace_of(rank, 4, events, pipetrace=replicas_of(2, 2)))
    recording = read_recording([tmp_path])
    assert (recording.ranks, recording.replicas) == (2, 2)
    assert [found.rank for found in recording.found_of(1)] == [2, 3]
    (step,) = recording.steps
    lanes = step.where(step.lane == Lane.ALL_TO_ALL)
    zero = step.start.min()
    rows = zip(
        lanes.replica,
        lanes.rank,
        *(column - zero for column in (lanes.start, lanes.end, lanes.posted, lanes.waited)),
        strict=True,
    )
    assert [tuple(map(int, row)) for row in rows] == [
        (0, 0, 30, 60, 10, 14),
        (0, 1, 20, 60, 10, 40),
        (1, 0, 30, 60, 30, 50),
        (1, 1, 20, 60, 20, 30),
    ]
    assert step.of_replica(1).is_compute.sum() == 4
    (tmp_path / "rank3.json").unlink()
    assert "there is no trace of rank 3" in read_recording([tmp_path]).missing[0]


def test_compute_that_goes_on_while_the_other_lane_waits_for_a_receive_is_not_idle(tmp_path: Path) -> None:
    events = [event(f"POST:0RECV_B{microbatch}", 0, 1) for microbatch in range(3)] + [
        event("WAIT:0RECV_B0", 10, 40, tid=8),
        event("PP:0F1@0.attn", 10, 25),
        event("WAIT:0RECV_B1", 40, 60, tid=8),
        event("PP:0F1@0.mlp", 45, 70),
        event("WAIT:0RECV_B2", 80, 90, tid=8),
    ]
    write(tmp_path, 0, trace_of(0, 1, events))
    (step,) = read_recording([tmp_path]).steps
    zero = step.start[step.lane == Lane.COMPUTE].min() - 10
    received = step.where(step.lane == Lane.RECV)
    waited = {str(tile.action): None if tile.waited is None else tile.waited - int(zero) for tile in received}
    assert waited == {"0RECV_B0": 25, "0RECV_B1": None, "0RECV_B2": 80}


def test_all_to_alls_may_be_posted_and_waited_for(tmp_path: Path) -> None:
    events = [
        event("PP:0F0@0.attn", 0, 5),
        event("POST:0F0@0.dispatch", 5, 6),
        event("PP:0I1@0.mlp", 6, 20),
        event("WAIT:0F0@0.dispatch", 20, 26),
    ]
    write(tmp_path, 0, trace_of(0, 1, events))
    recording = read_recording([tmp_path])
    (step,) = recording.steps
    lane = step.where(step.lane == Lane.ALL_TO_ALL)
    assert [str(tile.action) for tile in lane] == ["0F0@0.dispatch"]
    assert (lane.end - lane.start).tolist() == [21]
    assert (lane.end - lane.waited).tolist() == [6]
    assert recording.found[0].counts["WAIT ALL_TO_ALL"] == 1


def test_a_run_of_other_replicas_than_there_are_ranks_is_refused(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, trace_of(rank, 3, [event("PP:0F0", 0, 5)], pipetrace=replicas_of(2, 2)))
    with pytest.raises(TraceError, match="2 replicas of 2 ranks, but the traces are of 3 ranks"):
        read_recording([tmp_path])


def test_labels_at_one_time(tmp_path: Path) -> None:
    names = ["PP:0F0", "PP:0SEND_F0", "POST:0SEND_F1", "PP:0UNSHARD", "PP:0F1", "Forward 0"]
    write(tmp_path, 0, trace_of(0, 1, [event(name, 5, 9) for name in names]))
    assert set(compute_of(read_recording([tmp_path]).steps[0])) == {"0F0", "0F1"}


def test_labels_outside_of_steps_and_unreadable_ones_are_told(tmp_path: Path) -> None:
    events = [
        event("STEP", 0, 100),
        event("PP:0F0", 5, 9),
        event("PP:0F1", 200, 205),
        event("PP:nonsense", 10, 11),
        event("PP:0B0", 20, 22, cat="gpu_user_annotation"),
    ]
    write(tmp_path, 0, trace_of(0, 1, events))
    recording = read_recording([tmp_path])
    assert recording.step_names == ("STEP",)
    assert list(compute_of(recording.steps[0])) == ["0F0"]
    assert "rank 0: 1 labels lie outside of all steps and were left out" in recording.notes
    assert any("'PP:nonsense'" in note for note in recording.notes)


def test_steps_marked_by_hand_and_steps_that_a_rank_lacks(tmp_path: Path) -> None:
    first = [event("STEP", 0, 10), event("STEP", 20, 30), event("PP:0F0", 1, 2), event("PP:0F0", 21, 23)]
    write(tmp_path, 0, trace_of(0, 2, first))
    write(tmp_path, 1, trace_of(1, 2, [event("STEP 0", 0, 10), event("PP:1F0", 3, 4), event("STEP", 0, 10)]))
    recording = read_recording([tmp_path])
    assert recording.step_names == ("STEP", "STEP 0", "STEP 1")
    assert any(line == "rank 1 does not have STEP 0, STEP 1" for line in recording.missing)
    many = [event(f"ProfilerStep#{n}", n * 10, n * 10 + 9) for n in (10, 9)]
    write(tmp_path, 0, trace_of(0, 2, many))
    write(tmp_path, 1, trace_of(1, 2, many))
    assert read_recording([tmp_path]).step_names == ("ProfilerStep#9", "ProfilerStep#10")


def test_run_info_comes_from_the_metadata(tmp_path: Path) -> None:
    info = RunInfo("zb-h1", 3, 4, "sleep", Costs(), True, 1, started=5)
    write_run(tmp_path, simulated(), pipetrace=with_clock("x", run=info.to_dict()))
    recording = read_recording([tmp_path])
    assert recording.run == info
    assert recording.found[0].labels is LabelStyle.PIPETRACE
    assert recording.found[1].counts["WAIT RECV_F"] == 4
    newer = {**info.to_dict(), "schema": 99}
    write_run(tmp_path, simulated(), pipetrace=with_clock("x", run=newer))
    recording = read_recording([tmp_path])
    assert recording.run is None
    assert any("what was run is not known" in note for note in recording.notes)


@pytest.mark.parametrize("other", [{"started": 1}, {"schedule": "1f1b"}, {"microbatches": 5}, {"ranks": 3}])
def test_different_runs_are_refused(other: dict[str, Any], tmp_path: Path) -> None:
    for rank in range(2):
        run = RunInfo("zb-h1", 2, 4, "sleep", Costs(), True, 1).to_dict() | (other if rank else {})
        trace = trace_of(rank, 2, [event(f"PP:{rank}F0", 0, 1)], pipetrace=with_clock("x", run=run))
        write(tmp_path, rank, trace)
    with pytest.raises(TraceError, match=f"ranks 0 and 1 are of different runs: .* names {next(iter(other))} "):
        read_recording([tmp_path])


# What torch recorded.


@pytest.mark.parametrize(
    ("folder", "ranks", "style", "counts", "tiles"),
    [
        ("rt-zbh1_pp4_mb8_mlp", 4, LabelStyle.RUNTIME, {"F": 8, "I": 8, "W": 8}, 96),
        ("zbv_pp2_mb4_mlp", 2, LabelStyle.RUNTIME, {"F": 8, "I": 8, "W": 8}, 48),
        ("gpipe_pp2_mb4_mlp", 2, LabelStyle.GPIPE, {"F": 4, "B": 4}, 16),
        ("1f1b_pp2_mb4_mlp", 2, LabelStyle.NONE, {}, 0),
        ("synthetic_gpu_1f1b_pp4_mb8", 4, LabelStyle.NONE, {}, 0),
    ],
)
def test_traces_of_torch(folder: str, ranks: int, style: LabelStyle, counts: dict[str, int], tiles: int) -> None:
    recording = read_recording([TRACES / folder])
    assert recording.ranks == ranks
    assert [found.rank for found in recording.found] == list(range(ranks))
    assert len(recording.steps) == len(recording.step_names) == 1
    (timeline,) = recording.steps
    assert int(timeline.is_compute.sum()) == tiles
    for found in recording.found:
        assert found.labels is style
        assert {kind: n for kind, n in found.counts.items() if kind in "FBIW"} == counts
    assert (recording.missing == ()) is (style is not LabelStyle.NONE)
    assert (timeline.end >= timeline.start).all()
    known = timeline.posted != UNKNOWN
    assert (timeline.posted[known] <= timeline.end[known]).all()
    for rank in range(ranks):
        mine = timeline.where(timeline.is_compute & (timeline.rank == rank))
        assert (mine.start[1:] >= mine.end[:-1]).all()


@pytest.mark.parametrize("folder", ["rt-zbh1_pp4_mb8_mlp", "zbv_pp2_mb4_mlp"])
def test_no_action_of_torch_starts_before_its_input_was_made(folder: str) -> None:
    (timeline,) = read_recording([TRACES / folder]).steps
    for kinds, step in (((Kind.F,), 1), ((Kind.I, Kind.B), -1)):
        producer, consumer = dependencies(timeline, kinds, step)
        assert producer.size
        assert (timeline.start[consumer] >= timeline.end[producer]).all()


def test_what_torch_does_not_record_is_said() -> None:
    missing = " ".join(read_recording([TRACES / "1f1b_pp2_mb4_mlp"]).missing)
    assert "no action is labelled on ranks 0, 1" in missing
    assert "16 sends and receives were seen" in missing
    assert "336 GPU kernels" in " ".join(read_recording([TRACES / "synthetic_gpu_1f1b_pp4_mb8"]).missing)
    notes = " ".join(read_recording([TRACES / "rt-zbh1_pp4_mb8_mlp"]).notes)
    assert "48 of them" in notes
    assert "the I of stage 0 (rank 0) does nothing" in notes


# Which files.


def test_single_files_and_absent_ranks() -> None:
    folder = TRACES / "rt-zbh1_pp4_mb8_mlp"
    recording = read_recording([folder / "rank3.json.gz", folder / "rank1.json.gz", folder / "rank3.json.gz"])
    assert recording.ranks == 4
    assert [found.rank for found in recording.found] == [1, 3]
    assert "4 ranks ran, but there is no trace of ranks 0, 2" in recording.missing
    assert any("as when they arrived is not known" in note for note in recording.notes)


def test_rank_from_the_file_name(tmp_path: Path) -> None:
    nameless = {"traceEvents": [event("PP:0F0", 0, 1)]}
    write(tmp_path, 0, nameless, "run-Rank_2.json")
    assert read_recording([tmp_path]).found[0].rank == 2
    path = write(tmp_path, 0, nameless, "other.json")
    with pytest.raises(TraceError, match=r"neither distributedInfo nor the file's name"):
        read_recording([path])


def test_folder_takes_the_most_telling_names(tmp_path: Path) -> None:
    for rank in range(11):
        trace = trace_of(rank, 11, [event(f"PP:{rank}F0", 0, 1)])
        (tmp_path / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(dump(trace).encode()))
    (tmp_path / "rank0.json").write_text("not looked at")
    (tmp_path / "other.json").write_text("not looked at")
    assert [found.rank for found in read_recording([tmp_path]).found] == list(range(11))


def test_a_rank_whose_trace_is_not_compressed_is_read_beside_those_that_are(tmp_path: Path) -> None:
    for rank, name in enumerate(["rank0_trace.json", "rank1_trace.json.gz", "rank2.json", "rank2_trace.json.gz"]):
        trace = dump(trace_of(min(rank, 2), 3, [event(f"PP:{min(rank, 2)}F0", 0, 1)])).encode()
        (tmp_path / name).write_bytes(gzip.compress(trace) if name.endswith(".gz") else trace)
    found = read_recording([tmp_path]).found
    assert [(of.rank, of.file.name) for of in found] == [
        (0, "rank0_trace.json"),
        (1, "rank1_trace.json.gz"),
        (2, "rank2_trace.json.gz"),
    ]


def test_what_pipetrace_drew_is_no_recording(tmp_path: Path) -> None:
    write_trace(tmp_path / "diff.json.gz", [("ideal", simulated())])
    write_trace(tmp_path / "rank0.json", [("ideal", simulated())])
    write_trace(tmp_path / "zb-h1.json", [("ideal", simulated())])
    with pytest.raises(TraceError, match="holds no traces"):
        read_recording([tmp_path])
    with pytest.raises(TraceError, match="is no recording: pipetrace wrote it"):
        read_recording([tmp_path / "zb-h1.json"])
    write(tmp_path, 0, trace_of(0, 1, [event("PP:0F0", 0, 1)]), "mine.json")
    (tmp_path / "rank0.json").unlink()
    assert [of.file.name for of in read_recording([tmp_path]).found] == ["mine.json"]


def test_a_step_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    write(tmp_path, 0, trace_of(0, 1, [event("PP:0F0", 0, 1), event("ProfilerStep#" + "9" * 5000, 0, 1)]))
    assert read_recording([tmp_path]).step_names == ("whole trace",)


@pytest.mark.parametrize("order", [1, -1])
def test_what_begins_and_ends_at_once_has_some_order(order: int, tmp_path: Path) -> None:
    events = [event("PP:0F0", 0, 0), event("POST:0SEND_F0", 0, 0), event("WAIT:0SEND_F0", 0, 0), event("PP:0F0", 0, 0)]
    write(tmp_path, 0, trace_of(0, 1, events[::order]))
    recording = read_recording([tmp_path])
    assert recording.found[0].counts["F"] == 1
    assert "rank 0: 1 events stand twice in its trace and were read once" in recording.notes


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    one = write(tmp_path, 0, trace_of(0, 2, []))
    again = write(tmp_path, 0, trace_of(0, 2, []), "again.json")
    three = write(tmp_path, 1, trace_of(1, 3, []), "three.json")
    fifth = write(tmp_path, 5, trace_of(5, 2, []), "fifth.json")
    copy = write(tmp_path, 1, trace_of(1, 2, [event("PP:0F0", 0, 1)]), "copy.json")
    zero = write(tmp_path, 0, trace_of(0, 2, [event("PP:0F0", 0, 1)]), "zero.json")
    for paths, message in (
        ([one, again], "are both of rank 0"),
        ([one, three], "is of 2 ranks, but"),
        ([fifth], "is of rank 5, but the run has 2 ranks"),
        ([copy, zero], "several pipelines"),
        ([], "no traces were given"),
        ([tmp_path / "absent"], "No such file"),
    ):
        with pytest.raises(TraceError, match=message) as caught:
            read_recording(paths)
        assert "\n" not in caught.value.message


def test_folders_without_traces(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TraceError, match="holds no traces"):
        read_recording([tmp_path])
    loop = tmp_path / "rank0.json"
    loop.symlink_to(loop)
    with pytest.raises(TraceError):
        read_recording([loop])


def odd_runs() -> list[Any]:
    run = RunInfo("zb-h1", 1, 1, "sleep", Costs(), True, 1).to_dict()
    odd: list[dict[str, Any]] = [
        {"costs": {"unit": [1]}},
        {"costs": {"p2p": "9" * 5000}},
        {"costs": {"stages": {"9" * 5000: {}}}},
        {"ranks": True},
        {"microbatches": -1},
        {"schema": [1]},
    ]
    clocks: list[Any] = [{"host": [], "boot_id": {}}, {"host": "x", "boot_id": 3}, {}]
    return [{"run": run | one} for one in odd] + [{"clock": clock} for clock in clocks]


def test_odd_metadata_harms_nobody(tmp_path: Path) -> None:
    odd = trace_of(0, 1, [event("PP:0F0", 0, 1)])
    distributed: Any
    pipetrace_data: Any
    for distributed in ({"rank": True}, {"rank": -1, "world_size": "x"}, {"rank": [0]}, [], None, {"rank": "0"}):
        for pipetrace_data in (None, 3, {"clock": 3, "run": 4, "rank": {}}, {"run": {}}, *odd_runs()):
            write(tmp_path, 0, {**odd, "distributedInfo": distributed, "pipetrace": pipetrace_data, "host_name": None})
            assert len(read_recording([tmp_path]).steps[0]) == 1


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_traces_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    shutil.copytree(TRACES / "gpipe_pp2_mb4_mlp", folder, dirs_exist_ok=True)
    path = folder / "rank1.json.gz"
    raw = bytearray(gzip.decompress(path.read_bytes()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        what = data.draw(st.sampled_from(["cut", "flip", "drop"]))
        if what == "cut":
            del raw[at + 1 :]
        elif what == "flip":
            raw[at] = data.draw(st.integers(0, 255))
        else:
            del raw[at : at + data.draw(st.integers(1, 200))]
    path.write_bytes(gzip.compress(bytes(raw)))
    message = ""
    try:
        assert read_recording([folder]).ranks == 2
    except TraceError as error:
        message = error.message
    assert "\n" not in message


def test_a_step_of_a_real_trace_can_be_found_by_eye(tmp_path: Path) -> None:
    """Figures read off the file by hand, so that reader and test do not share a mistake."""
    raw = json.loads(gzip.decompress((TRACES / "zbv_pp2_mb4_mlp" / "rank0.json.gz").read_bytes()))
    label = next(e for e in raw["traceEvents"] if e["name"] == "PP:3I1")
    assert (label["ts"], label["dur"]) == (5111093468122.591, 1746.595)
    (timeline,) = read_recording([TRACES / "zbv_pp2_mb4_mlp"]).steps
    tile = timeline.find(Action(Kind.I, 3, 1))
    assert tile is not None
    assert timeline.epoch + tile.start == 1790857026000000000 + 5111093468122591
    assert tile.duration == 1746595
    assert np.isin(tile.rank, [0]).all()
