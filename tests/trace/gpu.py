"""Traces as torch.profiler records them on GPUs, made from a timeline, so that the truth is known.

The host runs far ahead: it launches a whole step in a fraction of its time. Forwards are launched by the main thread,
on which labels stand; backwards by autograd's own. A receive is a kernel on a stream of its own, which spins from when
its rank is free to when the data is there.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.timeline import Lane, Timeline
from tests.trace.recorded import dump, event, trace_of

NEW = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
OLD = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
GEMM, ADD = "sm90_xmma_gemm_bf16", "void at::native::vectorized_elementwise_kernel<4>"
MAIN, AUTOGRAD = 1, 2
COMPUTE, RECEIVES, SENDS = 7, 20, 21
HOST_STEP = 2_000
"""ns of the host between two launches."""


@dataclass(frozen=True)
class Truth:
    """What a reader must find.

    Args:
        ideal: The timeline that was drawn.
        waits: ns for which each receive's kernel spun before the data was ready at its sender.
        transfers: ns from then on to its end.
    """

    ideal: Timeline
    waits: Mapping[str, int]
    transfers: Mapping[str, int]


class _Rank:
    def __init__(self, kernel_name: str) -> None:
        self.events: list[dict[str, Any]] = []
        self.host = 0
        self.correlation = 0
        self.nccl = kernel_name

    def launch(self, thread: int, name: str, stream: int, start: int, end: int, **more: Any) -> None:
        self.correlation += 1
        ids = {"correlation": self.correlation}
        self.events.append(
            event("cudaLaunchKernel", self.host, self.host + 900, cat="cuda_runtime", tid=thread, args=ids)
        )
        args = ids | {"device": 0, "stream": stream} | more
        self.events.append(event(name, start, end, cat="kernel", pid=0, tid=stream, args=args))
        self.host += HOST_STEP

    def post(self, name: str, stream: int, start: int, end: int, **more: Any) -> None:
        self.events.append(event(name, self.host, self.host + 1500, cat="cpu_op", tid=MAIN))
        self.host += 100
        self.launch(MAIN, self.nccl, stream, start, end, **more)

    def compute(self, action: Action, start: int, end: int, label: str | None) -> None:
        begins = self.host
        self.host += 500
        count = 3 if action.kind is Kind.F else 6
        thread = MAIN if action.kind is Kind.F else AUTOGRAD
        edges = [start + (end - start) * k // count for k in range(count)] + [end]
        for k in range(count):
            gap = 7 if k < count - 1 else 0
            self.launch(thread, GEMM if k % 3 != 1 else ADD, COMPUTE, edges[k], edges[k + 1] - gap)
        if label is not None:
            self.events.append(event(label, begins, self.host, tid=MAIN))
            # The profiler repeats it over its kernels, and its times there are the device's.
            self.events.append(event(label, start, end, tid=COMPUTE, pid=0, cat="gpu_user_annotation"))
        self.host += 500


def write_gpu_run(
    folder: Path,
    ideal: Timeline,
    schedule: pipetrace.Schedule,
    *,
    label: str | None = "PP:{action}",
    nccl: str = NEW,
    sends: bool = True,
    told: bool = True,
    host_name: str | None = "here",
) -> Truth:
    """A folder of traces, one a rank, and the truth about them.

    Args:
        folder: Where to.
        ideal: Of `schedule`, with transfers.
        schedule: Whose list the host launches in order.
        label: Of compute, with `{action}`, `{stage}`, `{microbatch}` and `{kind}`; None for none.
        nccl: What NCCL's kernels are called.
        sends: Whether sends have kernels.
        told: Whether the profiler says of a kernel whether it sends or receives.
        host_name: None for a trace that names none.
    """
    waits, transfers = {}, {}
    for rank in range(schedule.ranks):
        out = _Rank(nccl)
        free = 0
        for action in schedule.actions(rank):
            assert isinstance(action, Action)
            tile = ideal.find(action)
            assert tile is not None
            forward = action.kind is Kind.F
            receive = ideal.find(Action(Kind.RECV_F if forward else Kind.RECV_B, action.stage, action.microbatch))
            if receive is not None and action.kind is not Kind.W:
                producer = ideal.find(_producer(action, schedule))
                assert producer is not None
                start = min(free + 1_000, receive.end - 5_000)
                more = {"Collective name": "recv"} if told else {}
                out.post("c10d::recv_", RECEIVES, start, receive.end, **more)
                waits[str(receive.action)] = max(0, producer.end - start)
                transfers[str(receive.action)] = receive.end - max(producer.end, start)
            text = label and label.format(
                action=action, stage=action.stage, microbatch=action.microbatch, kind=action.kind.name
            )
            out.compute(action, tile.start, tile.end, text)
            send = ideal.find(Action(Kind.SEND_F if forward else Kind.SEND_B, action.stage, action.microbatch))
            if sends and send is not None and action.kind is not Kind.W:
                more = {"Collective name": "send"} if told else {}
                out.post("c10d::send", SENDS, tile.end, send.end, **more)
            free = tile.end
        # What is no pipeline's: gradients over data-parallel ranks, an optimiser's copy.
        end = ideal.span[1]
        out.launch(MAIN, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 22, end, end + 9)
        out.events.append(event("ProfilerStep#3", 0, out.host + 10, tid=MAIN))
        trace = trace_of(rank, schedule.ranks, out.events, host_name=host_name)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(dump(trace).encode(), 1))
    return Truth(ideal, waits, transfers)


def _producer(action: Action, schedule: pipetrace.Schedule) -> Action:
    """What makes the data that an action takes."""
    if action.kind is Kind.F:
        return Action(Kind.F, action.stage - 1, action.microbatch)
    return Action(action.kind, action.stage + 1, action.microbatch)


def compute_times(timeline: Timeline) -> dict[str, tuple[int, int, int]]:
    """(rank, start, end) of every compute tile, from the first one's start."""
    tiles = timeline.from_first_action()
    return {str(t.action): (t.rank, t.start, t.end) for t in tiles if t.lane is Lane.COMPUTE}
