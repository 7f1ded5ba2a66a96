"""What of a transfer is known where only one of its two ends was recorded."""

from __future__ import annotations

import gzip
from pathlib import Path

import pipetrace
from pipetrace.action import Action, Kind, code_kind, code_stage
from pipetrace.fit import fit
from pipetrace.report.recording import recording_summary
from pipetrace.timeline import Lane, Tile, Timeline
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, trace_of, write_run


def test_without_the_sender_a_receive_is_a_wait_and_no_transfer(tmp_path: Path) -> None:
    costs = pipetrace.parse_costs("F=1,B=2", p2p=200_000)
    ideal = pipetrace.simulate(pipetrace.build("1f1b", 4, 8), costs)
    write_run(tmp_path, ideal)
    whole = read_recording([tmp_path])
    (tmp_path / "rank2_trace.json.gz").unlink()
    recording = read_recording([tmp_path])
    (step,), (of_all,) = recording.steps, whole.steps
    received = step.where(step.lane == Lane.RECV)
    from_absent = ((code_stage(received.code) == 3) & (code_kind(received.code) == Kind.RECV_F)) | (
        (code_stage(received.code) == 1) & (code_kind(received.code) == Kind.RECV_B)
    )
    assert int(from_absent.sum()) == 16
    timed = step.is_timed[step.lane == Lane.RECV]
    assert (timed == ~from_absent).all()
    assert (received.start[from_absent] == received.end[from_absent]).all()
    assert of_all.is_timed.sum() == 48
    # What the rank waited does not depend on who else was recorded.
    (now,), (then,) = recording_summary(recording)["steps"], recording_summary(whole)["steps"]
    assert now["of_ranks"] == [0, 1, 3]
    assert now["waited_ns"] == [then["waited_ns"][rank] for rank in now["of_ranks"]]
    assert now["transfers_not_known"] == [0, 8, 8]
    assert now["transfer_ns"][0] == then["transfer_ns"][0]
    assert now["transfer_ns"][2] is now["waited_in_transfer_ns"][2] is None
    assert then["transfers_not_known"] == [0, 0, 0, 0]
    assert 0 < then["waited_in_transfer_ns"][3] <= min(then["waited_ns"][3], then["transfer_ns"][3])

    fitted = fit(recording.steps)
    assert fitted.costs.p2p == fit(whole.steps).costs.p2p == 200_000
    assert set(fitted.transfers_between) == {(0, 1), (1, 0)}
    assert any("16 of 32 receives came from senders that were not recorded" in note for note in fitted.assumed)
    assert not any("were not recorded" in note for note in fit(whole.steps).assumed)


def test_a_trace_without_events_does_not_move_the_zero(tmp_path: Path) -> None:
    ideal = pipetrace.simulate(pipetrace.build("1f1b", 4, 8), pipetrace.parse_costs("F=1,B=2", p2p=200_000))
    write_run(tmp_path, ideal, steps=2)
    (tmp_path / "rank1_trace.json.gz").unlink()
    without = read_recording([tmp_path])
    (tmp_path / "rank1_trace.json.gz").write_bytes(gzip.compress(dump(trace_of(1, 4, [])).encode()))
    empty = read_recording([tmp_path])
    assert len(empty.steps) == 2
    assert [step.epoch for step in empty.steps] == [step.epoch for step in without.steps]
    assert [list(step) for step in empty.steps] == [list(step) for step in without.steps]


def test_where_no_sender_was_recorded_no_transfer_is_fitted(tmp_path: Path) -> None:
    ideal = pipetrace.simulate(pipetrace.build("gpipe", 2, 4), pipetrace.parse_costs("F=1,B=2", p2p=100_000))
    write_run(tmp_path, ideal)
    (tmp_path / "rank0_trace.json.gz").unlink()
    fitted = fit(read_recording([tmp_path]).steps)
    assert fitted.transfers is None
    assert fitted.costs.p2p == 0
    assert any("all 4 receives came from senders that were not recorded" in note for note in fitted.assumed)


def test_a_transfer_that_takes_no_time_is_timed_where_its_send_is_there() -> None:
    def tiles(replica: int, kind: Kind, stage: int, lane: Lane) -> Tile:
        return Tile(Action(kind, stage, 3, pipe=1), stage, lane, 5, 5, replica=replica)

    ends = [tiles(replica, Kind.RECV_B, 0, Lane.RECV) for replica in (0, 1)]
    both = Timeline.from_tiles(2, [*ends, tiles(1, Kind.SEND_B, 1, Lane.SEND)], replicas=2)
    assert [(tile.replica, tile.lane) for tile in both.where(both.is_timed)] == [(1, Lane.RECV)]
