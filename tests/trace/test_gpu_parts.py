"""GPU traces of known truth with two lanes: all-to-alls on a stream of their own, beside compute."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipetrace
from pipetrace.action import ALL_TO_ALL_PARTS, Action, Kind
from pipetrace.costs import Costs
from pipetrace.diff_run import diff_traces
from pipetrace.lanes import issue_order
from pipetrace.metrics import all_to_alls
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline
from pipetrace.trace.identity import identity
from pipetrace.trace.run_folder import RunInfo
from pipetrace.trace.torch_profiler import read_recording
from tests.trace.recorded import dump, event, trace_of

COSTS = Costs(
    layer=LayerCosts(
        PartCosts(101_000, 103_000, 97_000),
        PartCosts(71_000, 73_000, 0),
        PartCosts(131_000, 137_000, 59_000),
        PartCosts(79_000, 83_000, 0),
    ),
    p2p=20_001,
)
MAIN, AUTOGRAD = 1, 2
COMPUTE, ALL_TO_ALL, COPIES = 100, 200, 300
"""Streams, to which the rank is added."""
NCCL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
EARLY = 11_000
"""ns before the second replica at which the first comes to an all-to-all, if its stream is free."""
LATE = 400
"""ns by which the second replica's copies on a shared device begin later than the first one's."""


class Host:
    """Launches work from one thread, backwards from autograd's, far ahead of the GPU."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = self.launches = 0

    def launch(
        self, name: str, cat: str, stream: int, start: int, end: int, thread: int = MAIN, *, collective: str = ""
    ) -> None:
        self.launches += 1
        ids = {"correlation": self.launches}
        begins, ends = self.now, self.now + 500
        self.events.append(event("cudaLaunchKernel", begins, ends, cat="cuda_runtime", tid=thread, args=ids))
        args = {**ids, "device": 0, "stream": stream} | ({"Collective name": collective} if collective else {})
        self.events.append(event(name, start, end, cat=cat, pid=0, tid=stream, args=args))
        self.now += 1000

    def label(self, text: str, begins: int) -> None:
        self.events.append(event(text, begins, self.now, tid=MAIN))
        self.now += 100

    def compute(self, action: Action, stream: int, start: int, end: int) -> None:
        begins, middle = self.now, (start + end) // 2
        thread = MAIN if action.kind is Kind.F else AUTOGRAD
        self.launch("gemm", "kernel", stream, start, middle - 7, thread)
        self.launch("add", "kernel", stream, middle, end, thread)
        self.label(f"PP:{action}", begins)

    def transfer(self, role: str, action: Action, name: str, stream: int, start: int, end: int) -> None:
        begins = self.now
        if name == NCCL:
            kind = "recv" if action.kind in (Kind.RECV_F, Kind.RECV_B) else "send"
            self.events.append(event(f"c10d::{kind}", self.now, self.now + 900, cat="cpu_op", tid=MAIN))
            self.launch(name, "kernel", stream, start, end, collective=kind)
        else:
            self.launch(name, "gpu_memcpy", stream, start, end)
        self.label(f"{role}:{action}", begins)

    def write(self, path: Path, rank: int, world: int, metadata: dict[str, Any]) -> None:
        self.events.append(event("ProfilerStep#0", 0, self.now, tid=MAIN))
        trace = trace_of(rank, world, self.events) | {"pipetrace": metadata}
        path.write_bytes(gzip.compress(dump(trace).encode(), 1))


def scene(name: str, order: MoeOrder) -> tuple[Schedule, Timeline]:
    schedule = expand_moe(pipetrace.build(name, 2, 4), Overlap(order), COSTS)
    return schedule, pipetrace.simulate(schedule, COSTS)


def info(schedule: Schedule, replicas: int) -> RunInfo:
    return RunInfo(
        schedule=schedule.name,
        ranks=schedule.ranks,
        microbatches=schedule.microbatches,
        workload="sleep",
        costs=COSTS,
        costs_are_exact=True,
        steps=1,
        started=1,
        replicas=replicas,
    )


def first_input(schedule: Schedule, ideal: Timeline, action: Action) -> Any:
    """The receive that a row waits for: of the first part of a stage's forward or backward."""
    forward = action.kind is Kind.F
    if action.kind is Kind.W or action.part is None or action.part.name != ("ATTN" if forward else "COMBINE"):
        return None
    return ideal.find(Action(Kind.RECV_F if forward else Kind.RECV_B, action.stage, action.microbatch))


def last_output(ideal: Timeline, action: Action) -> Any:
    forward = action.kind is Kind.F
    if action.kind is Kind.W or action.part is None or action.part.name != ("COMBINE" if forward else "ATTN"):
        return None
    return ideal.find(Action(Kind.SEND_F if forward else Kind.SEND_B, action.stage, action.microbatch))


def rows_of(schedule: Schedule, ideal: Timeline, rank: int) -> list[tuple[Action, int, int]]:
    found = []
    for action in schedule.actions(rank):
        assert isinstance(action, Action)
        tile = ideal.find(action)
        assert tile is not None
        found.append((action, tile.start, tile.end))
    return found


def write_ranks(folder: Path, schedule: Schedule, ideal: Timeline, replicas: int) -> None:
    """A GPU a rank: all-to-alls are NCCL's kernels, and that of who comes first spins until the other has come."""
    for place in range(schedule.ranks * replicas):
        replica, rank = divmod(place, schedule.ranks)
        host, free = Host(), 0
        for action, start, end in rows_of(schedule, ideal, rank):
            receive = first_input(schedule, ideal, action)
            if receive is not None:
                host.transfer("POST", receive.action, NCCL, COPIES, receive.end - 9_000, receive.end)
            if action.part in ALL_TO_ALL_PARTS:
                came = start if replica else max(free, start - EARLY)
                begins = host.now
                host.launch(NCCL, "kernel", ALL_TO_ALL, came, end, collective="all_to_allv")
                host.label(f"PP:{action}", begins)
                free = end
            else:
                host.compute(action, COMPUTE, start, end)
            send = last_output(ideal, action)
            if send is not None:
                host.transfer("POST", send.action, NCCL, COPIES + 1, send.start, send.end)
        # As an own run labels where it waits for a receive, on the host: what says that these are its labels.
        host.label("WAIT:1RECV_F0", host.now)
        metadata = identity(info(schedule, replicas), place, [[0, 0]])
        host.write(folder / f"rank{place}_trace.json.gz", place, schedule.ranks * replicas, metadata)


def write_shared(folder: Path, schedule: Schedule, ideal: Timeline, replicas: int) -> None:
    """All ranks of all replicas on one GPU: all-to-alls are a copy each, and a synthetic kernel behind it."""
    host, streams = Host(), []
    rank_of = schedule.links.rank.tolist()
    for row in issue_order(schedule).tolist():
        action = Action.from_code(int(schedule.code[row]))
        tile = ideal.find(action)
        assert tile is not None
        places = [replica * schedule.ranks + rank_of[row] for replica in range(replicas)]
        travels = action.part in ALL_TO_ALL_PARTS
        if travels and replicas > 1:
            for place in places:
                begins = host.now
                host.launch("pack", "kernel", ALL_TO_ALL + place, tile.start - 3, tile.start - 1)
                host.label(f"POST:{action}", begins)
        for place in places:
            if travels:
                begins = host.now
                late = LATE * (place // schedule.ranks)
                host.launch("Memcpy DtoD", "gpu_memcpy", ALL_TO_ALL + place, tile.start + late, tile.start + 900)
                host.launch("spin_kernel", "kernel", ALL_TO_ALL + place, tile.start + 950, tile.end)
                host.label(f"PP:{action}", begins)
            else:
                host.compute(action, COMPUTE + place, tile.start, tile.end)
            send = last_output(ideal, action)
            if send is not None:
                host.transfer("POST", send.action, "Memcpy DtoD", COPIES + place, send.start, send.end)
    for place in range(schedule.ranks * replicas):
        streams += [
            {"stream": str(first + place), "rank": place, "runs": runs}
            for first, runs in ((COMPUTE, "compute"), (ALL_TO_ALL, "all-to-all"), (COPIES, "communication"))
        ]
    held = [schedule.placement.held_by(rank) for rank in range(schedule.ranks)]
    metadata = {"streams": streams, "holds": held} | identity(info(schedule, replicas), 0, [[0, 0]])
    host.write(folder / "rank0_trace.json.gz", 0, 1, metadata)


def tiles(timeline: Timeline, *lanes: Lane) -> dict[str, tuple[int, int, int]]:
    of = timeline.from_first_action()
    return {f"{t.lane.name} {t.action}": (t.rank, t.start, t.end) for t in of if t.lane in lanes}


@pytest.mark.parametrize(("name", "order"), [("dualpipev", MoeOrder.DUALPIPE), ("moe-1f1b", MoeOrder.ALIGNED)])
@pytest.mark.parametrize("write", [write_ranks, write_shared])
@pytest.mark.parametrize("replicas", [1, 2])
def test_hidden_and_exposed_time_is_that_of_the_kernels(
    name: str, order: MoeOrder, write: Any, replicas: int, tmp_path: Path
) -> None:
    schedule, ideal = scene(name, order)
    write(tmp_path, schedule, ideal, replicas)
    recording = read_recording([tmp_path])
    assert (recording.ranks, recording.replicas, recording.missing) == (2, replicas, ())
    truth = all_to_alls(ideal)
    assert 0 < truth.hidden.sum() < truth.duration.sum()
    (measured,) = recording.steps
    for replica in range(replicas):
        mine = measured.of_replica(replica)
        lanes: tuple[Lane, ...] = (Lane.COMPUTE, Lane.ALL_TO_ALL)
        if write is write_ranks and replicas == 1:
            # Nobody to wait for: who comes early begins early.
            lanes = (Lane.COMPUTE,)
        late = LATE if write is write_shared and replica else 0
        wanted = tiles(ideal, *lanes)
        for which, (rank, start, end) in wanted.items():
            if which.startswith("ALL_TO_ALL"):
                wanted[which] = rank, start + late, end
        assert tiles(mine, *lanes) == wanted
        if len(lanes) > 1 and not late:
            found = all_to_alls(measured, replica)
            for column in ("duration", "hidden", "exposed"):
                assert found.per_rank(getattr(found, column)) == truth.per_rank(getattr(truth, column))
    if replicas == 2 and write is write_ranks:
        came = all_to_alls(measured, 0).tiles
        assert np.max(came.start - came.posted) == EARLY


@pytest.mark.parametrize("write", [write_ranks, write_shared])
def test_a_diff_tells_it_beside_the_ideal(write: Any, tmp_path: Path) -> None:
    schedule, ideal = scene("dualpipev", MoeOrder.DUALPIPE)
    write(tmp_path, schedule, ideal, 2)
    table: dict[str, Any] = diff_traces([tmp_path], schedule, COSTS).to_dict()
    of = table["all_to_all"]
    assert of["measured"] == of["ideal"]
    assert sum(of["measured"]["exposed_ns"]) > 0
    assert table["makespan_ns"]["measured"] == table["makespan_ns"]["ideal"]


def test_all_to_alls_of_others_are_their_nccl_kernels_alone(tmp_path: Path) -> None:
    """A label of somebody else's may hold a permutation on the compute stream, which is no all-to-all."""
    host = Host()
    for at, part in enumerate(("attn", "dispatch", "mlp", "combine")):
        begins = host.now
        host.launch("gemm", "kernel", COMPUTE, 1000 * at, 1000 * at + 400)
        if part in ("dispatch", "combine"):
            host.launch(NCCL, "kernel", ALL_TO_ALL, 1000 * at + 500, 1000 * at + 900, collective="all_to_allv")
        host.label(f"PP:0F0@0.{part}", begins)
    host.write(tmp_path / "rank0.json.gz", 0, 1, {})
    (step,) = read_recording([tmp_path]).steps
    assert tiles(step, Lane.ALL_TO_ALL) == {
        "ALL_TO_ALL 0F0@0.dispatch": (0, 1500, 1900),
        "ALL_TO_ALL 0F0@0.combine": (0, 3500, 3900),
    }
