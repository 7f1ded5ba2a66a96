"""What `bench/gpu_check.sh` runs: schedules on one device, gradients checked, each against its ideal, as a table."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.diff_run import diff_traces
from pipetrace.execute import RunConfig, run
from pipetrace.execute.launcher import Launcher
from pipetrace.timeline import Lane, Timeline
from pipetrace.waiting import Wait

SCHEDULES = ("zb-h1", "zbv", "dualpipev", "moe-1f1b")
RANKS, MICROBATCHES = 4, 8
MS = 1_000_000
SLEEP = Costs(StageCosts(F=5 * MS, I=5 * MS, W=5 * MS))


@dataclass(frozen=True)
class Row:
    """A line of the table; times in ns."""

    schedule: str
    workload: str
    check: str
    ideal: int
    measured: int
    ideal_bubble: float
    measured_bubble: float
    hidden: float
    seconds: float

    @property
    def text(self) -> str:
        """As a line of Markdown."""
        off = self.measured / self.ideal - 1
        return (
            f"| {self.schedule} | {self.workload} | {self.check} | {self.ideal / MS:.2f} | {self.measured / MS:.2f} "
            f"| {100 * off:+.1f} % | {100 * self.ideal_bubble:.1f} % | {100 * self.measured_bubble:.1f} % "
            f"| {100 * self.hidden:.0f} % | {self.seconds:.0f} |"
        )


HEAD = (
    "| schedule | workload | check | ideal ms | measured ms | off by | ideal bubble | measured bubble "
    "| transfers hidden | took s |\n|---|---|---|---|---|---|---|---|---|---|"
)


def hidden_share(timeline: Timeline) -> float:
    """Share of the time of transfers during which the rank that receives computes; 1 where nothing travels."""
    covered = whole = 0
    for rank in range(timeline.ranks):
        mine = timeline.rank == rank
        compute = timeline.where(mine & (timeline.lane == Lane.COMPUTE))
        receives = timeline.where(mine & (timeline.lane == Lane.RECV))
        busy = list(zip(compute.start.tolist(), compute.end.tolist(), strict=True))
        for start, end in zip(receives.start.tolist(), receives.end.tolist(), strict=True):
            whole += end - start
            covered += sum(max(0, min(end, e) - max(start, s)) for s, e in busy)
    return covered / whole if whole else 1.0


def measure(name: str, config: RunConfig, ranks: int, folder: Path, launcher: Launcher) -> Row:
    """One run."""
    begins = time.monotonic()
    schedule = pipetrace.build(name, ranks, MICROBATCHES)
    result = run(schedule, config, folder, lambda text: print(f"  {text}", flush=True), launcher)
    assert result.check is not None
    print(f"  {result.check.text}", flush=True)
    of = diff_traces([folder])
    return Row(
        name,
        config.workload,
        ("bit-equal" if result.check.bit_equal else "passed") if result.check.passed else "FAILED",
        of.diff.ideal_bubbles.makespan,
        of.diff.measured_bubbles.makespan,
        of.diff.ideal_bubbles.fraction,
        of.diff.measured_bubbles.fraction,
        hidden_share(of.diff.measured),
        time.monotonic() - begins,
    )


def main(out: Path) -> int:
    """Runs all, prints the table, and returns how many checks failed."""
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    sleep = RunConfig("sleep", costs=SLEEP, check=True, device=device, one_process=True)
    real = replace(sleep, workload="transformer", hidden=64, heads=4, sequence=64, batch=2)
    if gpu:
        real = replace(real, hidden=2048, heads=16, sequence=1024, batch=4, layers=2, dtype="bfloat16")
    plan = [(name, config) for config in (sleep, real) for name in SCHEDULES]
    plan.append(("zb-h1", replace(sleep, wait=Wait.DATAFLOW)))
    rows = []
    with Launcher() as launcher:  # torch is imported once
        for number, (name, config) in enumerate(plan):
            print(f"{name}, {config.workload}, {config.wait}, all ranks in one process", flush=True)
            rows.append(measure(name, config, RANKS, out / f"{number}-{name}-{config.workload}", launcher))
        # A process for each rank: over NCCL as many as there are GPUs, on the CPU two, without tags as over NCCL.
        ranks = torch.cuda.device_count() if gpu else 2
        apart = replace(real, one_process=False, ordered=not gpu)
        print(f"gpipe, transformer, {ranks} processes of one rank", flush=True)
        rows.append(measure("gpipe", apart, ranks, out / "gpipe-processes", launcher))
    title = torch.cuda.get_device_name() if gpu else "CPU: streams are threads"
    lines = [f"{title}, torch {torch.__version__}", "", HEAD, *(row.text for row in rows)]
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(["", *lines]))
    return sum(row.check == "FAILED" for row in rows)


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
