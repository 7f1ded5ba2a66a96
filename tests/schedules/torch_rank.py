"""One rank of torch's own pipeline runtime, fed with CSVs; a program that `test_torch_runtime` starts p times.

Usage: python -m tests.schedules.torch_rank FOLDER RANK. `FOLDER/runs.json` says what to run; what came out is written
to `FOLDER/rank{RANK}.json`: for each run and parameter of the rank's stages the largest difference of its gradient
from that of a single process, and the largest gradient.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, BATCH = 8, 3


@dataclass(frozen=True)
class Run:
    """What to run: a CSV in the folder, in which of torch's formats, and on which rank each stage lies."""

    file: str
    format: Literal["compute_only", "compute_comms"]
    microbatches: int
    stage_ranks: list[int]


def stage_module(stage: int) -> torch.nn.Module:
    """A stage, the same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(stage)
        return torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Tanh()
        )


def data(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The step's inputs and targets."""
    generator = torch.Generator().manual_seed(1234)
    inputs, targets = torch.randn(2, microbatches * BATCH, WIDTH, generator=generator)
    return inputs, targets


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Summed, so that nothing has to be scaled by the number of microbatches."""
    return torch.nn.functional.mse_loss(output, target, reduction="sum")


def gradients(modules: list[torch.nn.Module]) -> list[dict[str, torch.Tensor]]:
    """The gradients of each module by name."""
    found = []
    for module in modules:
        named = {}
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, f"{name} has no gradient"
            named[name] = parameter.grad
        found.append(named)
    return found


def alone(stages: int, microbatches: int) -> list[dict[str, torch.Tensor]]:
    """The gradients of all stages in a single process, one microbatch after the other."""
    modules = [stage_module(stage) for stage in range(stages)]
    model = torch.nn.Sequential(*modules)
    inputs, targets = data(microbatches)
    for x, y in zip(inputs.chunk(microbatches), targets.chunk(microbatches), strict=True):
        torch.autograd.backward(loss(model(x), y))
    return gradients(modules)


def in_pipeline(run: Run, folder: Path, rank: int) -> dict[int, dict[str, torch.Tensor]]:
    """The gradients of the rank's stages, as torch's runtime makes them by the CSV."""
    mine = [stage for stage, holder in enumerate(run.stage_ranks) if holder == rank]
    modules = [stage_module(stage) for stage in mine]
    stages = [
        PipelineStage(module, stage, len(run.stage_ranks), torch.device("cpu"))
        for stage, module in zip(mine, modules, strict=True)
    ]
    runtime_type: Any = _PipelineScheduleRuntime
    runtime = runtime_type(stages, run.microbatches, loss_fn=loss, scale_grads=False)
    runtime._load_csv(str(folder / run.file), format=run.format)
    inputs, targets = data(run.microbatches)
    runtime.step(*([inputs] if 0 in mine else []), target=targets)
    return dict(zip(mine, gradients(modules), strict=True))


def main(folder: Path, rank: int) -> None:
    """Runs all that `runs.json` lists in one process group."""
    # {"ranks": p, "runs": [the fields of a Run, ...]}
    told = json.loads((folder / "runs.json").read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=told["ranks"])
    results = {}
    for run in (Run(**run) for run in told["runs"]):
        expected = alone(len(run.stage_ranks), run.microbatches)
        results[run.file] = {
            f"{stage}.{name}": ((got - expected[stage][name]).abs().max().item(), got.abs().max().item())
            for stage, named in in_pipeline(run, folder, rank).items()
            for name, got in named.items()
        }
    (folder / f"rank{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
