"""CPU time, memory and size of writing a million slices as Chrome JSON and as Perfetto's own format.

    python bench/write_traces.py [slices]

Each line is a process of its own; times are CPU seconds without imports and without making the timeline, memory is by
how much the process's peak rose while writing. The first lines are what else there is, with four annotations a slice:
`json.dump` and the `perfetto` package's streaming builder. The others are pipetrace's writers, with six annotations:
slices alone, then ZB-V on 64 ranks with its arrows and counters. Wanted: JSON in at most 5 s, .pftrace in at most 8 s
and of half the size, both within 100 MB.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

import pipetrace
from pipetrace.action import Kind, pack
from pipetrace.timeline import COLUMNS, Timeline
from pipetrace.trace.formats import write_trace

RANKS = 64


def bare(slices: int) -> Timeline:
    """Back-to-back weight gradients, between which there are no arrows."""
    number = np.arange(slices, dtype=np.int64)
    rank, microbatch = number % RANKS, number // RANKS
    start = microbatch * 1_234_567
    columns = {"rank": rank, "code": pack(int(Kind.W), rank, microbatch), "start": start, "end": start + 1_234_567}
    return Timeline.from_columns(RANKS, columns)


def whole(slices: int) -> Timeline:
    """ZB-V: F, I and W of two chunks a rank, with their arrows."""
    return pipetrace.simulate(pipetrace.build("zbv", RANKS, slices // (6 * RANKS)))


def events(slices: int) -> Iterator[dict[str, Any]]:
    """Chrome events of as many slices with four annotations."""
    for number in range(slices):
        rank, microbatch = number % RANKS, number // RANKS
        yield {
            "ph": "X",
            "pid": rank + 1,
            "tid": rank + 101,
            "name": f"W {microbatch}",
            "cat": "compute",
            "ts": microbatch * 1234.567,
            "dur": 1234.567,
            "args": {"action": f"{rank}W{microbatch}", "stage": rank, "microbatch": microbatch, "rank": rank},
        }


def json_dump(path: Path, slices: int) -> None:
    """The standard library, all at once."""
    with path.open("w") as file:
        json.dump({"traceEvents": list(events(slices))}, file)


def perfetto_builder(path: Path, slices: int) -> None:
    """The builder of the `perfetto` package, streaming, with interned names."""
    builder = cast("Any", importlib.import_module("perfetto.trace_builder.proto_builder"))
    protos = cast("Any", importlib.import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2"))
    with path.open("wb") as file:
        stream = builder.StreamingTraceProtoBuilder(file)
        for number in range(slices):
            rank, microbatch = number % RANKS, number // RANKS
            packet = stream.create_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = microbatch * 1_234_567, 1
            event = packet.track_event
            event.type, event.track_uuid, event.name = protos.TrackEvent.TYPE_SLICE_BEGIN, rank + 1, f"W {microbatch}"
            for key, value in (("stage", rank), ("microbatch", microbatch), ("rank", rank)):
                annotation = event.debug_annotations.add()
                annotation.name, annotation.int_value = key, value
            annotation = event.debug_annotations.add()
            annotation.name, annotation.string_value = "action", f"{rank}W{microbatch}"
            stream.write_packet(packet)
            packet = stream.create_packet()
            packet.timestamp, packet.trusted_packet_sequence_id = (microbatch + 1) * 1_234_567, 1
            packet.track_event.type, packet.track_event.track_uuid = protos.TrackEvent.TYPE_SLICE_END, rank + 1
            stream.write_packet(packet)


OTHERS = {"json.dump": (json_dump, "x.json"), "perfetto's builder": (perfetto_builder, "x.pftrace")}
OURS = {
    f"{what}{suffix}": (make, f"x{suffix}")
    for what, make in (("slices alone ", bare), ("with arrows and counters ", whole))
    for suffix in (".json", ".json.gz", ".pftrace", ".pftrace.gz")
}


def measure(line: str, slices: int) -> None:
    """Writes as one line says, and prints what it took."""
    with tempfile.TemporaryDirectory() as folder:
        if line in OTHERS:
            write, name = OTHERS[line]
            path = Path(folder) / name
            before, begin = _memory(), time.process_time()
            write(path, slices)
        else:
            make, name = OURS[line]
            path = Path(folder) / name
            # Made elsewhere, as what a simulation leaves free in this process would hide what writing takes.
            saved = Path(folder) / "timeline.npz"
            subprocess.run([sys.executable, __file__, str(slices), make.__name__, str(saved)], check=True)
            with np.load(saved) as columns:
                timeline = Timeline(RANKS, **columns)
            write_trace(Path(folder) / f"warm{path.suffix}", [("ideal", bare(RANKS))])  # imports
            before, begin = _memory(), time.process_time()
            write_trace(path, [("ideal", timeline)])
        took, rose, size = time.process_time() - begin, _peak() - before, path.stat().st_size
    print(f"{line:<38} {took:7.2f} s  {rose / (1 << 20):7,.0f} MiB  {size / 1e6:7,.1f} MB", flush=True)


def _memory() -> int:
    """Bytes in use, from which the peak is counted anew; where the system cannot say so, the peak so far."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
    return _peak()


def _peak() -> int:
    """The most bytes in use since `_memory` was asked."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) << 10


def main() -> None:
    """Prints one line a writer."""
    slices = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if len(sys.argv) > 3:
        timeline = {"bare": bare, "whole": whole}[sys.argv[2]](slices)
        np.savez(sys.argv[3], **{name: getattr(timeline, name) for name in COLUMNS})
        return
    if len(sys.argv) > 2:
        measure(sys.argv[2], slices)
        return
    print(f"{f'{slices:,} slices':<38}     CPU        peak +         size", flush=True)
    for line in (*OTHERS, *OURS):
        subprocess.run([sys.executable, __file__, str(slices), line], check=True)


if __name__ == "__main__":
    main()
