"""One process that ran all ranks: on a GPU, made up with known truth, and broken."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline
from pipetrace.trace.torch_profiler import SHARED, read_recording
from tests.trace.recorded import dump, event, trace_of

COSTS = pipetrace.Costs(default=pipetrace.StageCosts(301_000, 290_000, 313_000), p2p=20_001)
MAIN, AUTOGRAD = 1, 2


class Host:
    """A host that launches all ranks' work from one thread, backwards from autograd's, far ahead of the GPU."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0
        self.launches = 0

    def launch(self, name: str, cat: str, stream: int, start: int, end: int, thread: int = MAIN) -> None:
        self.launches += 1
        ids = {"correlation": self.launches}
        self.events.append(
            event("cudaLaunchKernel", self.now, self.now + 500, cat="cuda_runtime", tid=thread, args=ids)
        )
        args = ids | {"device": 0, "stream": stream}
        self.events.append(event(name, start, end, cat=cat, pid=0, tid=stream, args=args))
        self.now += 1000

    def label(self, text: str, begins: int) -> None:
        self.events.append(event(text, begins, self.now, tid=MAIN))
        self.now += 100


def record(folder: Path, schedule: Schedule, ideal: Timeline, **metadata: Any) -> None:
    host = Host()
    links = schedule.links
    for row in links.order.tolist():
        action = Action.from_code(int(links.code[row]))
        rank = int(links.rank[row])
        tile = ideal.find(action)
        assert tile is not None
        begins = host.now
        middle = (tile.start + tile.end) // 2
        thread = MAIN if action.kind is Kind.F else AUTOGRAD
        host.launch("gemm", "kernel", 20 + rank, tile.start, middle - 7, thread)
        host.launch("add", "kernel", 20 + rank, middle, tile.end, thread)
        host.label(f"PP:{action}", begins)
        send = ideal.find(
            Action(Kind.SEND_F if action.kind is Kind.F else Kind.SEND_B, action.stage, action.microbatch)
        )
        if send is not None and action.kind is not Kind.W:
            begins = host.now
            host.launch("Memcpy DtoD", "gpu_memcpy", 30 + rank, send.start, send.end)
            host.label(f"POST:{send.action}", begins)
    host.events.append(event("ProfilerStep#0", 0, host.now, tid=MAIN))
    trace = trace_of(0, 1, host.events)
    trace["pipetrace"] = {
        "rank": 0,
        "streams": [{"stream": "20", "rank": 0, "runs": "compute"}],
        "holds": [schedule.placement.held_by(rank) for rank in range(schedule.ranks)],
    } | metadata
    (folder / "rank0_trace.json.gz").write_bytes(gzip.compress(dump(trace).encode(), 1))


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv"])
def test_every_rank_gets_its_kernels_and_its_copies(name: str, tmp_path: Path) -> None:
    schedule = pipetrace.build(name, 3, 6)
    ideal = pipetrace.simulate(schedule, COSTS)
    record(tmp_path, schedule, ideal)
    recording = read_recording([tmp_path])
    assert recording.ranks == 3
    (measured,) = recording.steps
    for lane in (Lane.COMPUTE, Lane.SEND, Lane.RECV):
        one, other = (of.from_first_action().where(of.from_first_action().lane == lane) for of in (ideal, measured))
        found, truth = ({str(t.action): (t.rank, t.start, t.end) for t in of} for of in (other, one))
        assert found == truth
    assert SHARED in recording.notes
    assert not recording.missing


@pytest.mark.parametrize("holds", [None, [], "x", [[["a", 0]]], [[1]]])
def test_who_holds_what_must_be_said(holds: object, tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    record(tmp_path, schedule, pipetrace.simulate(schedule, COSTS), holds=holds)
    with pytest.raises(TraceError, match="which rank holds which stage is not said"):
        read_recording([tmp_path])


@pytest.mark.parametrize("rank", [None, "x", -1, 10**9, float("inf")])
def test_whose_the_streams_are_must_be_said(rank: object, tmp_path: Path) -> None:
    schedule = pipetrace.build("1f1b", 2, 2)
    streams = [{"stream": "20", "rank": rank, "runs": "compute"}]
    record(tmp_path, schedule, pipetrace.simulate(schedule, COSTS), streams=streams)
    with pytest.raises(TraceError, match="whose its streams are is not said"):
        read_recording([tmp_path])
