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
from pipetrace.metrics import all_to_alls
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline
from pipetrace.waiting import Wait

SCHEDULES = ("zb-h1", "zbv", "dualpipev", "moe-1f1b")
RANKS, MICROBATCHES = 4, 8
MS = 1_000_000
SLEEP = Costs(StageCosts(F=5 * MS, I=5 * MS, W=5 * MS))
PART, EXCHANGE = PartCosts(2 * MS, 2 * MS, 2 * MS), PartCosts(2 * MS, 2 * MS, 0)
PARTS = Costs(layer=LayerCosts(PART, EXCHANGE, PART, EXCHANGE))
IN_PARTS = [(name, order) for name in ("dualpipev", "moe-1f1b") for order in (MoeOrder.ALIGNED, MoeOrder.DUALPIPE)]


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
    all_to_alls: str
    seconds: float

    @property
    def text(self) -> str:
        """As a line of Markdown."""
        off = self.measured / self.ideal - 1
        return (
            f"| {self.schedule} | {self.workload} | {self.check} | {self.ideal / MS:.2f} | {self.measured / MS:.2f} "
            f"| {100 * off:+.1f} % | {100 * self.ideal_bubble:.1f} % | {100 * self.measured_bubble:.1f} % "
            f"| {100 * self.hidden:.0f} % | {self.all_to_alls} | {self.seconds:.0f} |"
        )


HEAD = (
    "| schedule | workload | check | ideal ms | measured ms | off by | ideal bubble | measured bubble "
    "| transfers hidden | exposed all-to-alls, ideal and measured ms | took s |\n" + "|---" * 11 + "|"
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


def exposed(of: Timeline) -> str:
    """ms of all-to-alls without compute beside them, summed over the ranks."""
    return f"{sum(all_to_alls(of).exposed.tolist()) / MS:.2f}"


def measure(schedule: Schedule, config: RunConfig, folder: Path, launcher: Launcher, called: str = "") -> Row:
    """One run."""
    begins = time.monotonic()
    result = run(schedule, config, folder, lambda text: print(f"  {text}", flush=True), launcher)
    assert result.check is not None
    print(f"  {result.check.text}", flush=True)
    of = diff_traces([folder])
    both = f"{exposed(of.diff.ideal)} {exposed(of.diff.measured)}" if schedule.has_parts else "none"
    return Row(
        called or schedule.name,
        config.workload,
        ("bit-equal" if result.check.bit_equal else "passed") if result.check.passed else "FAILED",
        of.diff.ideal_bubbles.makespan,
        of.diff.measured_bubbles.makespan,
        of.diff.ideal_bubbles.fraction,
        of.diff.measured_bubbles.fraction,
        hidden_share(of.diff.measured),
        both,
        time.monotonic() - begins,
    )


def in_parts(name: str, order: MoeOrder, ranks: int, costs: Costs) -> tuple[Schedule, str]:
    """A schedule in parts of one MoE layer a stage, and what it is called."""
    return expand_moe(pipetrace.build(name, ranks, MICROBATCHES), Overlap(order), costs), f"{name} {order}"


def main(out: Path) -> int:
    """Runs all, prints the table, and returns how many checks failed."""
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    sleep = RunConfig("sleep", costs=SLEEP, check=True, device=device, one_process=True)
    real = replace(sleep, workload="transformer", hidden=64, heads=4, sequence=64, batch=2)
    if gpu:
        real = replace(real, hidden=2048, heads=16, sequence=1024, batch=4, layers=2, dtype="bfloat16")
    moe = replace(
        sleep, workload="moe", ep=2, steps=2, hidden=64, sequence=32, batch=1, expert_hidden=64, capacity=1.25
    )
    if gpu:
        moe = replace(moe, hidden=1024, heads=16, sequence=1024, batch=4, expert_hidden=2048, experts=16)
    plan = [(pipetrace.build(name, RANKS, MICROBATCHES), config, "") for config in (sleep, real) for name in SCHEDULES]
    plan.append((pipetrace.build("zb-h1", RANKS, MICROBATCHES), replace(sleep, wait=Wait.DATAFLOW), ""))
    for number, (name, order) in enumerate(IN_PARTS):
        schedule, called = in_parts(name, order, RANKS, PARTS)
        plan.append((schedule, replace(sleep, costs=PARTS, ep=1 + number % 2, steps=3), called))
        schedule, called = in_parts(name, order, 2, Costs())
        # Without a capacity the host must know how many rows come; with one it goes ahead.
        plan.append((schedule, replace(moe, costs=Costs(), capacity=1.25 * (number % 2)), called))
    rows = []
    with Launcher() as launcher:  # torch is imported once
        for number, (schedule, config, called) in enumerate(plan):
            name = called or schedule.name
            print(f"{name}, {config.workload}, {config.wait}, ep {config.ep}, all in one process", flush=True)
            folder = out / f"{number}-{name.replace(' ', '-')}-{config.workload}"
            rows.append(measure(schedule, config, folder, launcher, called))
        # A process for each rank: over NCCL as many as there are GPUs, on the CPU two, without tags as over NCCL.
        ranks = torch.cuda.device_count() if gpu else 2
        apart = replace(real, one_process=False, ordered=not gpu)
        print(f"gpipe, transformer, {ranks} processes of one rank", flush=True)
        schedule = pipetrace.build("gpipe", ranks, MICROBATCHES)
        rows.append(measure(schedule, apart, out / "gpipe-processes", launcher))
        # Likewise in parts; with a GPU for each of two replicas, all-to-alls go over NCCL.
        ep = 2 if ranks > 1 else 1
        schedule, called = in_parts("moe-1f1b", MoeOrder.DUALPIPE, ranks // ep, Costs())
        apart = replace(moe, costs=Costs(), capacity=1.25, one_process=False, ordered=not gpu, ep=ep)
        print(f"{called}, moe, {ranks} processes of one rank, ep {ep}", flush=True)
        rows.append(measure(schedule, apart, out / "moe-1f1b-processes", launcher, called))
    title = torch.cuda.get_device_name() if gpu else "CPU: streams are threads"
    lines = [f"{title}, torch {torch.__version__}", "", HEAD, *(row.text for row in rows)]
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(["", *lines]))
    return sum(row.check == "FAILED" for row in rows)


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
