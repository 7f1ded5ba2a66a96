"""CPU time and memory of reading a trace to a timeline, beside what it takes json and orjson only to parse it.

    python bench/read_traces.py [events]

A labelled trace of 1F1B among operations is made, laid out a line an event (140 bytes) as most tools write, and over
several lines as torch does. Each line is a process of its own; times are CPU seconds without imports, memory is the
process's peak. orjson (the extra `bench`) is left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pipetrace

EVENTS = 2_000_000
_START = 5_110_859_219_155_958  # ns after the base, as torch's traces have it
_NAMES = ("aten::mm", "aten::add", "aten::linear", "aten::view", "aten::t", "aten::transpose", "aten::copy_")
_HEAD = '{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "host_name": "here",\n'

_ONE = """
import gc, resource, sys, time
from pathlib import Path
{imports}
path = Path({path!r})
begin = time.process_time()
{work}
took = time.process_time() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(f"{{took:.2f}} {{peak}}")
"""
_READERS = {
    "pipetrace": (
        "from pipetrace.trace.torch_profiler import read_recording",
        "(step,) = read_recording([path]).steps\nassert step.is_compute.sum() == {actions}",
    ),
    "json": ("import json", "assert json.loads(path.read_bytes())"),
    "orjson": ("import orjson", "assert orjson.loads(path.read_bytes())"),
    "orjson, gc off": ("import orjson", "gc.disable()\nassert orjson.loads(path.read_bytes())"),
}


def micros(ns: int) -> str:
    """ns as µs, to the last digit."""
    return f"{ns // 1000}.{ns % 1000:03}"


def write_trace(path: Path, events: int, *, pretty: bool = False) -> int:
    """Writes a trace of one rank, and returns how many actions it labels."""
    actions = [str(action) for action in pipetrace.build("1f1b", 1, max(1, events // 2000)).actions(0)]
    every = events // len(actions)
    with path.open("w", encoding="utf-8") as file:
        file.write(_HEAD + '"baseTimeNanoseconds": 1790857026000000000,\n"traceEvents": [\n')
        for i in range(events):
            at, number = _START + i * 1500, i // every
            label = i % every == 0 and number < len(actions)
            name, length = (f"PP:{actions[number]}", every * 1400) if label else (_NAMES[i % 7], 700 + i % 300)
            event = (
                f'{{"ph": "X", "cat": "{"user_annotation" if label else "cpu_op"}", "name": "{name}", "pid": 2882, '
                f'"tid": 2882, "ts": {micros(at)}, "dur": {micros(length)}, "args": {{"id": {i}}}}}'
            )
            if pretty:
                event = json.dumps(json.loads(event), indent=2)
            file.write(event if i == 0 else ",\n" + event)
        file.write("\n]}\n")
    return len(actions)


def main() -> None:
    """Prints a line a reader, layout and size."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    print("reader          layout             events   MB  CPU s  peak MiB", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        for pretty, count in ((False, events // 4), (False, events // 2), (False, events), (True, events // 2)):
            actions = write_trace(path, count, pretty=pretty)
            for reader, (imports, work) in _READERS.items():
                if "orjson" in reader and importlib.util.find_spec("orjson") is None:
                    continue
                code = _ONE.format(imports=imports, path=str(path), work=work.format(actions=actions))
                ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
                took, peak = ran.stdout.split()
                size = path.stat().st_size / 1e6
                layout = "over several lines" if pretty else "a line an event"
                print(f"{reader:<15} {layout:<18} {count:>7,} {size:>4.0f} {took:>6} {int(peak):>9,}", flush=True)


if __name__ == "__main__":
    main()
