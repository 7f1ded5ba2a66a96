"""`pipetrace run`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipetrace.cli import options
from pipetrace.cli.console import say, tell
from pipetrace.cli.cost_options import ActionCosts
from pipetrace.cli.ending import Interrupted
from pipetrace.cli.moe_options import Grain, MoeOptions, checked
from pipetrace.cli.schedule_options import Sizes
from pipetrace.cli.wait_options import Channel
from pipetrace.costs import Costs
from pipetrace.errors import RunError
from pipetrace.schedule import Schedule
from pipetrace.schedules import get
from pipetrace.waiting import Wait

if TYPE_CHECKING:
    from pipetrace.execute import Repeats

HELP = "Run a schedule for real with torch under torch.profiler, one process a rank (CPU, gloo)."
EXAMPLE = "pipetrace run zb-h1 -p 4 -m 8 --costs F=20,I=20,W=20 -o RUN/"

MOST_RANKS = 256
_COSTS = ("costs", "costs_file", "jitter", "unit")
_PARTS = ("moe_order", "no_split", "weights", "parts", "grain")
_NAMED = {"own": "--stages"}


def command(
    sizes: Sizes,
    costs: ActionCosts,
    moe: MoeOptions,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="RUN/", help="Folder for what the run leaves.")],
    name: options.Name = None,
    source: options.From = None,
    workload: Annotated[
        str,
        typer.Option(
            help="sleep (synthetic times, real communication), transformer (real blocks, autograd) or moe "
            "(with experts and all-to-alls)."
        ),
    ] = "sleep",
    steps: Annotated[int, typer.Option(help="Profiled steps.")] = 5,
    warmup: Annotated[int, typer.Option(help="Steps before them, not profiled.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Compare loss and gradients with a single process (sleep: the messages).")
    ] = False,
    message_bytes: Annotated[int, typer.Option(help="sleep: bytes of a message.")] = 8192,
    hidden: Annotated[int, typer.Option(help="Hidden size of transformer and moe.")] = 128,
    heads: Annotated[int, typer.Option(help="Attention heads.")] = 4,
    sequence: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 64,
    batch: Annotated[int, typer.Option(help="Sequences of a microbatch.")] = 2,
    dtype: Annotated[str, typer.Option(help="float32, float64 or bfloat16.")] = "float32",
    experts: Annotated[int, typer.Option(help="moe: experts of a layer.")] = 8,
    top_k: Annotated[int, typer.Option(help="moe: experts that a token goes to.")] = 2,
    capacity: Annotated[
        float, typer.Option(metavar="FACTOR", help="moe: drop what is beyond an expert's even share times this.")
    ] = 0.0,
    expert_hidden: Annotated[int, typer.Option(help="moe: hidden size inside an expert.")] = 256,
    ep: Annotated[int, typer.Option(help="Expert-parallel ranks, each a replica of the pipeline.")] = 1,
    stages: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="A model of your own, in place of --workload; docs/own_model.md."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds without progress before the run is given up.")] = 60.0,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT",
            help="A fault on purpose: rank2:compute*1.5, rank0:gap+2ms, link1-2:+5ms or no-tags; repeatable.",
        ),
    ] = None,
    wait: Annotated[Wait, typer.Option(help="When receives are posted, and what waits for them.")] = Wait.PREFETCH,
    no_reorder: Annotated[bool, typer.Option("--no-reorder", help="--wait dataflow: keep the list order.")] = False,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Start without looking for deadlocks and swapped transfers first.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="cpu (gloo) or cuda (NCCL, a GPU a rank; --one-process for one GPU).")
    ] = "cpu",
    one_process: Annotated[
        bool,
        typer.Option("--one-process", help="All ranks in one process on one device, a stream (or thread) a lane."),
    ] = False,
    channel: Annotated[
        Channel,
        typer.Option(help="ordered: send without tags, through a process group a direction, as NCCL needs it."),
    ] = Channel.TAGGED,
    repeat: Annotated[
        int, typer.Option(metavar="N", help="N runs, each in new processes, into RUN/1 to RUN/N; torch loads once.")
    ] = 1,
    typed: options.Typed = frozenset(),
) -> None:
    from pipetrace.execute import RunConfig
    from pipetrace.execute import repeat as execute_repeatedly
    from pipetrace.execute import run as execute
    from pipetrace.execute.inject import parse_injections

    if no_reorder and wait is not Wait.DATAFLOW:
        raise typer.BadParameter("--no-reorder goes with --wait dataflow; the others never leave the list order")
    if source is not None or (name is not None and "costs" in get(name).options):
        typed -= set(_COSTS)  # the order itself depends on them
    workload = _workload(workload, stages, typed)
    _refuse_what_has_no_effect(workload, typed)
    schedule, of = _scheduled(moe, costs, workload, lambda given: sizes.schedule(name, source, given))
    if schedule.ranks * ep > MOST_RANKS:
        raise RunError(
            f"{schedule.ranks * ep} ranks are a process each, too many for one machine", f"run at most {MOST_RANKS}"
        )
    of.check_stages(schedule.stages, schedule.name)
    config = RunConfig(
        workload=workload,
        costs=of,
        steps=steps,
        warmup=warmup,
        check=check,
        message_bytes=message_bytes,
        hidden=hidden,
        heads=heads,
        layers=moe.layers or 1,
        sequence=sequence,
        batch=batch,
        dtype=dtype,
        experts=experts,
        top_k=top_k,
        capacity=capacity,
        expert_hidden=expert_hidden,
        ep=ep,
        stages=stages or "",
        seed=seed,
        timeout=timeout,
        inject=parse_injections(inject or []),
        preflight=not no_preflight,
        device=device,
        one_process=one_process,
        ordered=channel is Channel.ORDERED,
        wait=wait,
        reorder=not no_reorder,
    )
    for folder in [out] if repeat == 1 else [out / str(number + 1) for number in range(repeat)]:
        _tell_what_is_replaced(folder)
    before = _traces(out)
    try:
        if repeat == 1:
            results = {out: execute(schedule, config, out, say)}
        else:
            repeats = execute_repeatedly(schedule, config, out, repeat, say)
            results = {out / result.folder.name: result for result in repeats.runs}
    except KeyboardInterrupt:
        kept = len(_traces(out) - before)
        raise Interrupted(*[f"the traces of {kept} ranks up to there are kept in {out}"] * (kept > 0)) from None
    checks = [(folder, result.check) for folder, result in results.items() if result.check is not None]
    for folder, outcome in checks:
        tell(outcome.text if repeat == 1 else f"{folder.name}: {outcome.text}")
    if not all(result.speaks for result in results.values()):
        return
    if repeat == 1:
        say(f"the run lies in {out}; next: pipetrace diff {out}")
    else:
        _tell_makespans(repeats)
        say(f"the runs lie in {out}; next: pipetrace diff {out / '1'}")
    if not all(outcome.passed for _, outcome in checks):
        raise typer.Exit(1)


def _tell_what_is_replaced(folder: Path) -> None:
    from pipetrace.errors import TraceError
    from pipetrace.trace.run_folder import RUN_FILE, read_run_info

    if (folder / RUN_FILE).is_file():
        with suppress(TraceError):  # the run itself says what is in its way
            at = datetime.fromtimestamp(read_run_info(folder).started // 10**9).astimezone()
            say(f"this run replaces that of {at:%Y-%m-%d %H:%M:%S} in {folder}")


def _scheduled(
    moe: MoeOptions, costs: ActionCosts, workload: str, build: Callable[[Costs], Schedule]
) -> tuple[Schedule, Costs]:
    """What is run, in parts where something is said of them, and its costs.

    What sleeps is in parts whenever its ideal would be: also for layers, and for a file with times of parts, which mean
    nothing without parts. Blocks have layers also as whole stages.
    """
    if moe.grain is Grain.STAGE:
        raise typer.BadParameter("--grain stage: a run of whole stages is one without options for parts")
    # The executor derives what is sent and received, and needs no list of it.
    of = costs.of_actions()
    of_parts = moe.layers is not None or of.layer is not None or of.stage_layers
    if not moe.in_parts and not (workload == "sleep" and of_parts):
        return checked(build(of).compute_only(), costs), of
    planned = moe.plan(lambda given: build(given).compute_only(), costs)
    return planned.schedule, planned.costs


def _tell_makespans(repeats: Repeats) -> None:
    from pipetrace.report.units import percent, unit_for

    unit = unit_for(repeats.median)
    tell(f"makespan   {' '.join(unit.number(makespan) for makespan in repeats.makespans)} {unit.name}")
    tell(f"median     {unit.text(repeats.median)}, spread {percent(repeats.spread)} (longest - shortest)")


def _workload(workload: str, stages: str | None, typed: options.Typed) -> str:
    if stages is None:
        return workload
    if "workload" in typed:
        raise typer.BadParameter("--stages is a workload by itself: leave --workload out")
    return "own"


def _refuse_what_has_no_effect(workload: str, typed: options.Typed) -> None:
    """A run that takes an option and ignores it is not the run that was asked for."""
    from pipetrace.execute.config import OPTIONS_OF

    of = OPTIONS_OF | {
        "sleep": (*OPTIONS_OF["sleep"], *_COSTS, *_PARTS, "layers", "ep"),
        "moe": (*OPTIONS_OF["moe"], *_PARTS),
    }
    useless: dict[str, list[str]] = {}
    for option in sorted(typed - set(of.get(workload, typed))):
        owning = [_NAMED.get(name, f"--workload {name}") for name, options_of in of.items() if option in options_of]
        owners = " and ".join(owning)
        useless.setdefault(owners, []).append(f"--{option.replace('_', '-')}")
    for owners, flags in useless.items():
        if owners:
            are = "are" if len(flags) > 1 else "is"
            raise typer.BadParameter(f"{' and '.join(flags)} {are} for {owners}, not {_NAMED.get(workload, workload)}")


def _traces(folder: Path) -> set[tuple[str, int]]:
    """The traces that lie in a folder, and when each was written."""
    with suppress(OSError, ValueError):
        return {
            (str(path), path.stat().st_mtime_ns)
            for path in (*folder.glob("rank*_trace.json.gz"), *folder.glob("*/rank*_trace.json.gz"))
        }
    return set()
