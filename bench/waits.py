"""How far runs with synthetic times are from their ideal, in each way of waiting; and what waiting costs.

    python bench/waits.py [--steps 5] [--tries 3] [--only ideal|waits|costs|moe]

prints the tables of docs/measured.md, and with `--only moe` that of docs/moe.md: the four orders of the parts of MoE
layers, simulated and measured. A run during which other processes used more than a tenth of a core is taken
again, `--tries` times at most, and the quietest is kept: what others used stands in the last column.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute import RunConfig, run
from pipetrace.execute.board import Board
from pipetrace.execute.launcher import Launcher
from pipetrace.execute.p2p import Pending
from pipetrace.execute.program import Transfer, compile_rank
from pipetrace.execute.step import Seat
from pipetrace.execute.waits import step_of
from pipetrace.execute.workloads.sleep import SleepWorkload
from pipetrace.jitter import Jitter
from pipetrace.metrics import all_to_alls
from pipetrace.parts_io import parse_parts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.ready import ready_lists
from pipetrace.schedule import Schedule
from pipetrace.timeline import Lane, Timeline
from pipetrace.trace.torch_profiler import read_recording
from pipetrace.waiting import Wait

MS = 1_000_000
RANKS, MICROBATCHES = 4, 8
SCHEDULES = ("1f1b", "zb-h1", "zbv", "dualpipe", "dualpipev", "chimera")
COSTS = Costs(StageCosts(20 * MS, 20 * MS, 20 * MS))
SMALL, LARGE = 8192, 4 << 20
QUIET = 0.1  # cores
MOE_MICROBATCHES, MOE_PARTS = 16, "attn=4,mlp=8,a2a=6"


@dataclass(frozen=True)
class Measured:
    """A run.

    Args:
        makespans: ns of each step.
        held: Share of the median step in which a rank has a receive posted that it has not taken yet.
        exposed: ns of its all-to-alls, over all ranks, without compute of their rank.
        others: Cores that other processes used meanwhile.
    """

    makespans: tuple[int, ...]
    held: float
    exposed: int
    others: float

    @property
    def median(self) -> int:
        """ns."""
        return sorted(self.makespans)[len(self.makespans) // 2]


def busy_seconds() -> float:
    """CPU seconds that all processes have used."""
    user, nice, system, _, _, irq, soft = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def own_seconds(launcher: Launcher) -> float:
    """CPU seconds that this process has used, and the supervisor and ranks that it has waited for."""
    process = launcher._process
    if process is None:
        return time.process_time()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def measure(schedule: Schedule, config: RunConfig, launcher: Launcher, tries: int) -> Measured:
    """The quietest of a few runs."""
    best: Measured | None = None
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as name:
            began, busy, own = time.perf_counter(), busy_seconds(), own_seconds(launcher)
            run(schedule, config, Path(name) / "RUN", launcher=launcher)
            others = busy_seconds() - busy - (own_seconds(launcher) - own)
            steps = read_recording([Path(name) / "RUN"]).steps
            median = sorted(steps, key=lambda step: step.makespan)[len(steps) // 2]
            of = Measured(
                tuple(step.makespan for step in steps),
                held(median),
                int(all_to_alls(median).exposed.sum()),
                max(0.0, others / (time.perf_counter() - began)),
            )
        if best is None or of.others < best.others:
            best = of
        if best.others <= QUIET:
            break
    assert best is not None
    return best


def held(timeline: Timeline) -> float:
    """Share of the step with a receive posted and not taken, over all ranks."""
    total = 0
    for rank in range(timeline.ranks):
        mine, until = (timeline.lane == Lane.RECV) & (timeline.rank == rank), 0
        spans = zip(timeline.posted[mine].tolist(), timeline.end[mine].tolist(), strict=True)
        for posted, end in sorted(span for span in spans if span[0] >= 0):
            total, until = total + max(0, end - max(posted, until)), max(until, end)
    return total / timeline.ranks / timeline.makespan


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def against_ideal(launcher: Launcher, steps: int, tries: int) -> None:
    """Prefetch and small messages: the median of some steps against the ideal."""
    print("| schedule | ideal, ms | measured, ms | over | steps, ms | others, cores |\n|---|---|---|---|---|---|")
    for name in SCHEDULES:
        schedule = pipetrace.build(name, RANKS, MICROBATCHES)
        ideal = pipetrace.simulate(schedule, COSTS).makespan
        of = measure(schedule, RunConfig(costs=COSTS, steps=steps, message_bytes=SMALL), launcher, tries)
        each = f"{min(of.makespans) / MS:.1f} … {max(of.makespans) / MS:.1f}"
        over = percent(of.median / ideal - 1)
        print(f"| {name} | {ideal / MS:.0f} | {of.median / MS:.1f} | {over} | {each} | {of.others:.2f} |", flush=True)


def three_waits(launcher: Launcher, steps: int, tries: int) -> None:
    """Each way of waiting, with small and large messages, without and with jitter: measured (ideal), ms."""
    print("| messages | jitter | wait | " + " | ".join(SCHEDULES) + " | held | others |")
    print("|---" * (len(SCHEDULES) + 5) + "|")
    for size, name in ((SMALL, "8 KB"), (LARGE, "4 MB")):
        for jitter in (None, Jitter(0.5)):
            costs = replace(COSTS, jitter=jitter)
            for wait in Wait:
                cells, helds, others = [], [], []
                for schedule in (pipetrace.build(of, RANKS, MICROBATCHES) for of in SCHEDULES):
                    config = RunConfig(costs=costs, steps=steps, message_bytes=size, wait=wait)
                    ideal = pipetrace.simulate(schedule, costs, config.waiting).makespan
                    of = measure(schedule, config, launcher, tries)
                    cells.append(f"{of.median / MS:.0f} ({ideal / MS:.0f})")
                    helds.append(of.held)
                    others.append(of.others)
                scatter = "±50 %" if jitter else "none"
                share = percent(sum(helds) / len(helds))
                row = " | ".join([name, scatter, str(wait), *cells, share, f"{max(others):.2f}"])
                print(f"| {row} |", flush=True)


def four_orders(launcher: Launcher, steps: int, tries: int) -> None:
    """DualPipeV with an MoE layer on each of its stages, in each order of the parts of a pair."""
    print("| order | makespan, simulated | measured | | exposed, simulated | measured | others, cores |")
    print("|---" * 7 + "|")
    whole = pipetrace.build("dualpipev", RANKS, MOE_MICROBATCHES)
    costs = Costs(layer=parse_parts(MOE_PARTS))
    for order in MoeOrder:
        schedule = expand_moe(whole, Overlap(order), costs)
        ideal = pipetrace.simulate(schedule, costs)
        exposed = int(all_to_alls(ideal).exposed.sum())
        of = measure(schedule, RunConfig(costs=costs, steps=steps, message_bytes=SMALL), launcher, tries)
        makespans = f"{ideal.makespan / MS:,.0f} ms | {of.median / MS:,.0f} ms | {of.median / ideal.makespan - 1:+.1%}"
        row = f"`{order}` | {makespans} | {exposed / MS:,.0f} ms | {of.exposed / MS:,.0f} ms | {of.others:.2f}"
        print(f"| {row.replace('%', ' %')} |", flush=True)


class Nothing:
    """A transport of which every value is there at once."""

    def wait(self) -> None:
        """At once."""

    def post_send(self, value: torch.Tensor, transfer: Transfer) -> Pending:  # noqa: ARG002
        return self

    def post_receive(self, buffer: torch.Tensor, transfer: Transfer) -> Pending:  # noqa: ARG002
        return self

    def add_up(self, value: torch.Tensor, ranks: tuple[int, ...]) -> None: ...

    def barrier(self) -> None: ...


@contextmanager
def counted(into: list[int]) -> Iterator[None]:
    """Bytes that are still there at the end."""
    gc.collect()
    tracemalloc.start()
    yield
    gc.collect()
    into.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()


def costs_of_waiting(sizes: Sequence[tuple[str, int, int]]) -> None:
    """What a rank pays for each action beside compute and transfers, and what its plan takes."""
    print("| schedule | actions of a rank | wait | µs an action | plan, bytes an action |\n|---|---|---|---|---|")
    nothing = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=8)
    for name, ranks, microbatches in sizes:
        schedule = pipetrace.build(name, ranks, microbatches)
        rank = ranks // 2
        program = compile_rank(schedule, rank)
        stages = {part: SleepWorkload(schedule, nothing).stage(*part) for part in schedule.placement.held_by(rank)}
        for wait in Wait:
            config = replace(nothing, wait=wait)
            workload, line = SleepWorkload(schedule, config), Board(ranks).line(rank)
            plan: list[int] = []
            _ = ready_lists(schedule, config.waiting)
            with counted(plan):
                seat = Seat(program, stages, Nothing(), workload.buffer, line, lambda _text: nullcontext())
                step = step_of(schedule, config, seat)
            times = []
            for _ in range(5):
                begin = time.process_time()
                step.run()
                times.append(time.process_time() - begin)
            actions = len(program.ops)
            each = f"{min(times) / actions * 1e6:.0f}"
            print(f"| {name}, p = {ranks}, m = {microbatches} | {actions} | {wait} | {each} | {plan[0] // actions} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--only", choices=("ideal", "waits", "costs", "moe"))
    given = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}; torch {torch.__version__}\n", flush=True)
    with Launcher() as launcher:
        if given.only in (None, "ideal"):
            against_ideal(launcher, given.steps, given.tries)
            print()
        if given.only in (None, "waits"):
            three_waits(launcher, given.steps, given.tries)
            print()
        if given.only in (None, "moe"):
            four_orders(launcher, given.steps, given.tries)
            print()
    if given.only in (None, "costs"):
        costs_of_waiting([("zb-h1", 8, 64), ("zb-h1", 8, 512), ("zbv", 16, 128)])


if __name__ == "__main__":
    main()
