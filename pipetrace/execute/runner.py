"""A run from beginning to end, seen from the caller."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from pipetrace.action import NO_ACTION
from pipetrace.errors import RunError
from pipetrace.execute.channels import check_channels
from pipetrace.execute.config import RunConfig
from pipetrace.execute.folder import Claim, claim
from pipetrace.execute.job import Job
from pipetrace.execute.launcher import Launcher, launch
from pipetrace.execute.own_path import look_for
from pipetrace.execute.program import preflight
from pipetrace.execute.result import CheckReport, RankCheck, RunResult
from pipetrace.execute.torchrun import elastic, run_here
from pipetrace.ready import ready_lists
from pipetrace.schedule import Schedule
from pipetrace.trace.run_folder import RunInfo
from pipetrace.version import __version__

_FACTORIES = {
    "sleep": "pipetrace.execute.workloads.sleep:build",
    "moe": "pipetrace.execute.workloads.moe:build",
    "own": "pipetrace.execute.workloads.own:build",
    "transformer": "pipetrace.execute.workloads.transformer:build",
}

_VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "OMP_NUM_THREADS")
_VARIABLE_FAMILIES = ("NCCL_", "GLOO_", "TORCH_")

_EPSILON = {
    "float32": float(np.finfo(np.float32).eps),
    "float64": float(np.finfo(np.float64).eps),
    "bfloat16": 2.0**-7,
}
_TOLERATED_EPSILONS = {"float32": 1000, "float64": 1000, "bfloat16": 4}


def run(
    schedule: Schedule,
    config: RunConfig,
    folder: Path,
    progress: Callable[[str], None] | None = None,
    launcher: Launcher | None = None,
) -> RunResult:
    """Runs a schedule: one process a rank on this host's CPUs, recorded by torch.profiler.

    Args:
        schedule: What to run.
        config: With what.
        folder: Where the traces go; made if it is not there, used again if an earlier run left it.
        progress: Is told what happens, and what ranks print, a line each; called in the calling thread.
        launcher: Starts the ranks; one that has started others before spares them the import of torch.

    Returns:
        What was run and, where `config.check` asks for it, how the results compare. A check that fails raises nothing.

    Raises:
        ScheduleError: The schedule is not valid, or deadlocks; or `config.caps` are less than its list order holds.
        OutputError: The folder cannot be used.
        RunError: The run cannot be started, or broke; then everything has ended, and traces up to there are kept.
        KeyboardInterrupt: From the keyboard, likewise.
    """
    tell = progress or (lambda _text: None)
    if config.preflight:
        # As given: an order of sends and receives that cannot work is a fault even where it is not used.
        schedule.validate()
    if schedule.has_communication:
        tell("the list's sends and receives are left out: a run derives its own")
        schedule = schedule.compute_only()
    if config.preflight:
        programs = preflight(schedule, tags=config.inject.tags, reorder=config.waiting.reorders)
        if config.ordered or (config.device == "cuda" and not config.one_process):
            check_channels(programs)
        if config.stages:
            look_for(config.stages)
    ready_lists(schedule, config.waiting)  # refuses caps that cannot be kept before anything is started
    config.inject.check(schedule)
    check_workload(schedule, config)
    info = describe(schedule, config)
    folder = folder.absolute()
    inject = config.inject
    stall_s = (config.timeout + longest_action(schedule, config)) * inject.most_stretch + 1e-9 * inject.longest

    def job(claimed: Claim) -> Job:
        return Job(schedule, config, info, claimed, _FACTORIES[config.workload], stall_s)

    under = elastic()
    if under is not None:
        checks = run_here(job, folder, under, tell)
        return RunResult(folder, info, _report(config, checks) if checks else None, speaks=under.rank == 0)
    with claim(folder, schedule, info) as claimed:
        checks = launch(job(claimed), tell) if launcher is None else launcher.run(job(claimed), tell)
    return RunResult(folder, info, _report(config, checks) if config.check else None)


def check_workload(schedule: Schedule, config: RunConfig) -> None:
    """Refuses what a workload cannot do with a schedule, here, where nothing has been started or written.

    Raises:
        RunError: Saying what.
    """
    if config.workload == "sleep" and config.costs.pair is not None and (schedule.partner != NO_ACTION).any():
        raise RunError(
            "sleep runs the halves of an overlapped pair one after the other and cannot take a cost for the pair",
            "leave FB out of the costs",
        )
    if schedule.has_parts:
        _check_parts(schedule, config)
    elif config.one_process and config.ep > 1:
        raise RunError(
            f"{config.ep} replicas in one process come to an all-to-all together, but {schedule.name} is of whole "
            "stages, whose all-to-alls lie inside them",
            "run parts of layers (--moe-order), or let each rank be a process",
        )
    elif config.workload == "sleep" and config.ep > 1:
        raise RunError(
            f"ep is {config.ep}, but whole stages of sleep have no all-to-alls", "run parts of layers, or take ep 1"
        )


def _check_parts(schedule: Schedule, config: RunConfig) -> None:
    of = f"{schedule.name} is in parts of layers"
    if config.workload not in ("sleep", "moe"):
        raise RunError(f"{of}, which {config.workload} does not have", "take the workload sleep or moe")
    if config.waiting.reorders:
        raise RunError(
            f"{of}, whose order on two lanes is fixed when it is made, for all replicas alike; dataflow may leave it",
            "keep it with --no-reorder, wait by prefetch or inline, or run whole stages",
        )
    layers = set(schedule.chain.layers.tolist())
    if config.workload == "moe" and layers != {config.layers}:
        raise RunError(
            f"{of}, {' or '.join(map(str, sorted(layers)))} a stage, but the workload has {config.layers}",
            "give as many layers",
        )


def longest_action(schedule: Schedule, config: RunConfig) -> float:
    """Seconds for which an action may rightly show no progress because it was told to take them."""
    return 1e-9 * int(config.costs.durations(schedule).max()) if config.workload == "sleep" else 0.0


def describe(schedule: Schedule, config: RunConfig) -> RunInfo:
    """What a run of `schedule` is recorded as."""
    return RunInfo(
        schedule=schedule.name,
        ranks=schedule.ranks,
        microbatches=schedule.microbatches,
        workload=config.workload,
        costs=config.costs,
        costs_are_exact=config.workload == "sleep",
        steps=config.steps,
        options={
            **config.options(),
            "device": config.device,
            "backend": "none" if config.one_process else "nccl" if config.device == "cuda" else "gloo",
            "threads_per_rank": 1,
            "cpus": os.cpu_count() or 0,
            "platform": platform.platform(),
        },
        versions={
            "pipetrace": __version__,
            "torch": _version_of("torch"),
            "python": platform.python_version(),
        },
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if name in _VARIABLES or name.startswith(_VARIABLE_FAMILIES)
        },
        started=time.time_ns(),
        replicas=config.ep,
    )


def _version_of(package: str) -> str:
    """Without an import, which takes seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise RunError(f"{package} is not installed", f"pip install {package}") from None


def _report(config: RunConfig, checks: tuple[RankCheck, ...]) -> CheckReport:
    if config.workload == "sleep":
        return CheckReport(checks, "messages", 0.0, "each must be the one that its action waits for")
    epsilons = _TOLERATED_EPSILONS[config.dtype]
    return CheckReport(
        checks,
        "gradients and the step's losses",
        epsilons * _EPSILON[config.dtype],
        f"{epsilons} times the rounding of {config.dtype}, for sums that were added up in another order",
    )
