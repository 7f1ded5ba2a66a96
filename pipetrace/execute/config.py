"""What a run is asked to do. Imports no torch, so that a command line can check its options at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pipetrace.costs import Costs
from pipetrace.errors import RunError
from pipetrace.execute.inject import Injections
from pipetrace.waiting import Wait, Waiting, waiting_to_dict

WORKLOADS = ("sleep", "transformer", "moe", "own")
DTYPES = ("float32", "float64", "bfloat16")
DEVICES = ("cpu", "cuda")

OPTIONS_OF = {
    "sleep": ("message_bytes",),
    "transformer": ("hidden", "heads", "layers", "sequence", "batch", "dtype", "seed"),
}
OPTIONS_OF["own"] = ("stages", "seed")
OPTIONS_OF["moe"] = (*OPTIONS_OF["transformer"], "experts", "top_k", "capacity", "expert_hidden", "ep")
"""Options that each workload has of its own, as `RunConfig` calls them."""

MIN_MESSAGE = 8
"""Bytes of the smallest message: `sleep` writes the transfer's identity into it."""

_AT_LEAST = {
    "steps": 1,
    "warmup": 0,
    "message_bytes": MIN_MESSAGE,
    "hidden": 1,
    "heads": 1,
    "layers": 1,
    "sequence": 2,  # a next token to predict
    "batch": 1,
    "experts": 1,
    "top_k": 1,
    "expert_hidden": 1,
    "ep": 1,
    "seed": 0,
}
_AT_MOST = {"message_bytes": (1 << 31) - 1, "seed": (1 << 32) - 1}


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Options of a run.

    Args:
        workload: "sleep": exact synthetic durations and real messages. "transformer": real blocks with autograd.
            "own": the user's model, see `stages`.
            "moe": with a choice of experts in place of the MLP, which the replicas share out.
        costs: What `sleep` takes for each action, and the ideal's costs in either case.
        steps: Profiled steps.
        warmup: Steps before them that are not profiled.
        check: Compare with a single-process run afterwards (`sleep`: whether every message was the right one).
        message_bytes: Bytes of a message of `sleep`.
        hidden: Width of the transformer.
        heads: Attention heads; divide `hidden`.
        layers: Blocks in a stage.
        sequence: Tokens in a sequence.
        batch: Sequences in a microbatch.
        dtype: "float32", "float64" or "bfloat16".
        experts: Experts in a layer, over all replicas.
        top_k: Experts that each token goes to.
        capacity: Rows that an expert is given by each replica's microbatch, as a factor of its even share; tokens
            beyond are dropped. 0 for as many as come, in all-to-alls of uneven sizes.
        expert_hidden: Width inside an expert.
        ep: Expert-parallel ranks: replicas of the pipeline that share out the experts.
        stages: For the workload "own", the function that makes the model, "package.module:function".
        seed: Of weights and tokens.
        timeout: Seconds without progress of any rank before a run is given up.
        inject: Faults that the run is given on purpose.
        device: "cpu" or "cuda".
        one_process: All ranks in one process on one device, a compute and a communication stream each; on a CPU a
            stream is a thread.
        ordered: Send without tags, through a process group for each direction, as NCCL needs it, on CPUs too.
        preflight: Look for deadlocks, and for transfers that would not meet, before anything starts.
        wait: When receives are posted, and what waits for them.
        reorder: Whether `dataflow` may leave the list order.
        caps: Most activations in flight on each rank that `dataflow` may reach, freed at W, in chunks; None for the
            peak of the list order.

    Raises:
        RunError: A value is out of range or of the wrong type.
        CostError: The same of what says how ranks wait.
    """

    workload: str = "sleep"
    costs: Costs = field(default_factory=Costs)
    steps: int = 5
    warmup: int = 1
    check: bool = False
    message_bytes: int = 8192
    hidden: int = 128
    heads: int = 4
    layers: int = 1
    sequence: int = 64
    batch: int = 2
    dtype: str = "float32"
    experts: int = 8
    top_k: int = 2
    capacity: float = 0.0
    expert_hidden: int = 256
    ep: int = 1
    stages: str = ""
    seed: int = 0
    timeout: float = 60.0
    inject: Injections = field(default_factory=Injections)
    preflight: bool = True
    device: str = "cpu"
    one_process: bool = False
    ordered: bool = False
    wait: Wait = Wait.PREFETCH
    reorder: bool = True
    caps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("workload", self.workload, WORKLOADS),
            ("dtype", self.dtype, DTYPES),
            ("device", self.device, DEVICES),
        ):
            if value not in known:
                raise RunError(f"unknown {name} {value!r}", f"give {' or '.join(known)}")
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise RunError(f"{name} is {value!r}", f"give a whole number, {least} or more")
            if value < least:
                raise RunError(f"{name} is {value}", f"give {least} or more")
            if value > _AT_MOST.get(name, value):
                raise RunError(f"{name} is {value}", f"give {_AT_MOST[name]} or less")
        if self.hidden % self.heads:
            raise RunError(
                f"hidden {self.hidden} cannot be shared by {self.heads} heads evenly",
                "give heads that divide hidden",
            )
        object.__setattr__(self, "wait", self.waiting.policy)  # which also checks it; a text would do
        if (self.workload == "own") != bool(self.stages):
            raise RunError(
                f"the workload is {self.workload}, with stages {self.stages!r}",
                'stages go with the workload "own": package.module:function',
            )
        self._check_experts()
        self._check_device()
        # Also false for NaN.
        if not 0 < self.timeout <= 1e9:
            raise RunError(f"the timeout is {self.timeout} s", "give seconds, above 0")

    def _check_device(self) -> None:
        if not self.one_process:
            return
        if self.inject.texts:
            raise RunError("faults are given to processes", "leave out the faults, or let each rank be a process")
        if self.wait is Wait.INLINE:
            raise RunError("in one process nothing is posted, so that it cannot be late", "wait prefetch or dataflow")
        if self.ordered:
            raise RunError("nothing is sent within one process", "leave ordered channels out")

    def _check_experts(self) -> None:
        if self.ep > 1 and self.workload not in ("moe", "sleep"):
            raise RunError(f"ep is {self.ep}, but {self.workload} has no experts", "take the workload moe, or ep 1")
        if self.workload == "moe" and self.experts % self.ep:
            raise RunError(
                f"{self.experts} experts cannot be shared by {self.ep} expert-parallel ranks evenly",
                "give experts that ep divides",
            )
        if self.top_k > self.experts:
            raise RunError(f"top_k is {self.top_k}, but there are {self.experts} experts", "give as many, or fewer")
        if self.ep > 1 and self.waiting.reorders:
            raise RunError(
                "dataflow may leave the list order on one replica and not on another, and their all-to-alls would not "
                f"meet; ep is {self.ep}",
                "keep the list order (--no-reorder), wait by prefetch, or take ep 1",
            )
        if not 0 <= self.capacity <= 1e6:
            raise RunError(f"the capacity is {self.capacity}", "give a factor such as 1.25, or 0 for no limit")

    @property
    def waiting(self) -> Waiting:
        """How ranks wait, as the simulator takes it."""
        return Waiting(self.wait, reorder=self.reorder, caps=self.caps)

    def options(self) -> dict[str, Any]:
        """What the workload was given beside schedule and costs, as plain values for the run's record."""
        common = ("warmup", "check", "timeout")
        options = {name: getattr(self, name) for name in common + OPTIONS_OF[self.workload]}
        options |= waiting_to_dict(self.waiting)
        if self.inject.texts:
            options["inject"] = list(self.inject.texts)
        if not self.preflight:
            options["preflight"] = False
        if self.one_process:
            options["ranks_share_a_device"] = True
        if self.ordered:
            options["channel"] = "ordered"
        return options
