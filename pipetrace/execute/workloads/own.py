"""`--stages package.module:function`: a model of the user's own; `docs/own_model.md` is the contract.

The function is called as `function(stages, microbatches)` on every rank and returns `(stages, batch, loss)`. Whatever
is wrong with it is told in one line, before the first step where that can be seen then.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from pipetrace.action import Action, Kind, code_kind
from pipetrace.errors import RunError
from pipetrace.execute.check import compare_stages
from pipetrace.execute.config import RunConfig
from pipetrace.execute.own_path import module_and_function, no_module
from pipetrace.execute.program import Program
from pipetrace.execute.result import RankCheck
from pipetrace.execute.stages.autograd_stage import AutogradStage
from pipetrace.execute.workloads.base import Host, Stages
from pipetrace.schedule import Schedule
from pipetrace.schedules.own import error_text

CONTRACT = "end it with: return stages, batch, loss (docs/own_model.md)"

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class OwnModel:
    """What a user's function returned, looked through.

    Args:
        path: "package.module:function".
        stages: How many the schedule has.
        microbatches: Of a step.
        seed: Set before the function is called, and again before each stage is made.
        device: Where modules and batches are put.

    Raises:
        RunError: The function cannot be found or called, or what it returned is not what was asked for.
    """

    def __init__(self, path: str, stages: int, microbatches: int, seed: int, device: torch.device) -> None:
        self._path, self._seed, self._microbatches, self._device = path, seed, microbatches, device
        function = _function(path)
        torch.manual_seed(seed)
        returned = self._call("", function, stages, microbatches)
        if not isinstance(returned, tuple) or len(returned) != 3:
            raise RunError(f"--stages {path} returned {_kind(returned)}", CONTRACT)
        entries, self._batch, self._loss = returned
        if not isinstance(entries, tuple | list | nn.ModuleList):
            raise RunError(
                f"--stages {path} returned {_kind(entries)} for the stages", "give a list, one entry a stage"
            )
        if len(entries) != stages:
            raise RunError(
                f"--stages {path} made {len(entries)} stages, but the schedule has {stages}",
                "make as many as the function's first argument says",
            )
        self._entries: Sequence[Any] = list(entries)
        if not callable(self._loss):
            raise RunError(
                f"--stages {path} returned {_kind(self._loss)} for the loss", "give (output, targets) → scalar"
            )
        self._refuse_shared_weights()
        self.batches = [self._microbatch(microbatch) for microbatch in range(microbatches)]
        self._check_batches()

    def module(self, stage: int) -> nn.Module:
        """A stage, made or copied anew: with the weights it has at the beginning.

        Raises:
            RunError: What stands for it is no module, and makes none.
        """
        entry = self._entries[stage]
        if isinstance(entry, nn.Module):
            return deepcopy(entry).to(self._device)
        if not callable(entry):
            raise RunError(
                f"--stages {self._path}: stage {stage} is {_kind(entry)}", "give a module, or what makes one"
            )
        torch.manual_seed(self._seed + 1 + stage)
        made = self._call(f": making stage {stage}", entry)
        if not isinstance(made, nn.Module):
            raise RunError(f"--stages {self._path}: making stage {stage} gave {_kind(made)}", "return an nn.Module")
        return made.to(self._device)

    def loss(self, output: torch.Tensor, microbatch: int) -> torch.Tensor:
        """A microbatch's share of the step's loss, which is the mean over its microbatches.

        Raises:
            RunError: The loss is no scalar that depends on the output.
        """
        value = self._loss(output, self.batches[microbatch][1])
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.dtype.is_floating_point:
            raise RunError(f"--stages {self._path}: the loss is {_kind(value)}", "return one number as a tensor")
        share: torch.Tensor = value.reshape(()) / self._microbatches
        return share

    def outputs(self, upto: int) -> list[torch.Tensor]:
        """An empty tensor like the output of each stage but the last, up to stage `upto`.

        Runs the first microbatch through the stages, one after the other, of which each is kept no longer than that.

        Raises:
            RunError: A stage fails on what the one before it gives, or gives no tensor of numbers.
        """
        value, found = self.batches[0][0], []
        for stage in range(min(upto + 1, len(self._entries))):
            module = self.module(stage)
            leaf = value.detach()
            if leaf.dtype.is_floating_point:
                leaf.requires_grad_()
            output = self._call(f": stage {stage} on {_kind(value)}", module, leaf)
            if not isinstance(output, torch.Tensor) or not output.dtype.is_floating_point:
                raise RunError(
                    f"--stages {self._path}: stage {stage} gives {_kind(output)}",
                    "give one tensor of floats; several can be put into one with torch.cat",
                )
            if stage == len(self._entries) - 1:
                self._call(": the loss", self.loss, output, 0)
            elif not output.requires_grad:
                raise RunError(
                    f"--stages {self._path}: the output of stage {stage} depends on none of its weights nor its input",
                    "no gradient can go through it: see that nothing is detached",
                )
            else:
                found.append(torch.empty_like(output, requires_grad=False, memory_format=torch.contiguous_format))
            value = output
        return found

    def _call(self, where: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (KeyboardInterrupt, RunError):
            raise
        except Exception as error:
            raise RunError(f"--stages {self._path}{where}: {error_text(error)}") from error

    def _microbatch(self, microbatch: int) -> Batch:
        made = callable(self._batch)
        pair = self._call(f": batch {microbatch}", self._batch, microbatch) if made else self._batch
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(x, torch.Tensor) for x in pair):
            raise RunError(
                f"--stages {self._path}: the batch is {_kind(pair)}",
                "give (inputs, targets), two tensors, or a function of a microbatch's number that does",
            )
        inputs, targets = pair
        if made:
            return inputs.detach().to(self._device), targets.detach().to(self._device)
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            if tensor.ndim == 0 or tensor.shape[0] % self._microbatches:
                raise RunError(
                    f"--stages {self._path}: {name} of shape {tuple(tensor.shape)} cannot be cut into "
                    f"{self._microbatches} microbatches along the first dimension",
                    "give a multiple of the microbatches, or a function of a microbatch's number",
                )
        inputs, targets = (
            tensor.detach().chunk(self._microbatches)[microbatch].contiguous().to(self._device) for tensor in pair
        )
        return inputs, targets

    def _check_batches(self) -> None:
        first = self.batches[0][0]
        for microbatch, (inputs, _) in enumerate(self.batches):
            if (inputs.shape, inputs.dtype) != (first.shape, first.dtype):
                raise RunError(
                    f"--stages {self._path}: the inputs of microbatch {microbatch} are {_kind(inputs)}, those of "
                    f"microbatch 0 {_kind(first)}",
                    "give all microbatches the same shape",
                )

    def _refuse_shared_weights(self) -> None:
        """Stages live in different processes: a weight that two of them use would become two weights."""
        owner: dict[int, tuple[int, str]] = {}
        for stage, entry in enumerate(self._entries):
            if isinstance(entry, nn.Module):
                for name, weight in entry.named_parameters():
                    other, its = owner.setdefault(id(weight), (stage, name))
                    if other != stage:
                        raise RunError(
                            f"--stages {self._path}: {its} of stage {other} and {name} of stage {stage} are one weight",
                            "stages run in different processes: give each its own",
                        )


class OwnWorkload:
    """Runs a user's model. The first stage starts with an inlet where its input has no gradient."""

    def __init__(self, schedule: Schedule, config: RunConfig, device: torch.device) -> None:
        self._schedule = schedule
        self._model = OwnModel(config.stages, schedule.stages, schedule.microbatches, config.seed, device)
        self._path = config.stages
        self._outputs: list[torch.Tensor] = []
        self._splits = bool((code_kind(np.concatenate([schedule.code, schedule.partner])) == Kind.I).any())

    def stage(self, pipe: int, stage: int) -> AutogradStage:  # noqa: ARG002 - pipes are copies
        """See `Workload`."""
        first, last = stage == 0, stage == self._schedule.stages - 1
        body, inlet = self._model.module(stage), None
        if stage >= len(self._outputs):
            self._outputs = self._model.outputs(stage)
        if first:
            inlet, body = self._inlet(body)
        model = self._model
        return AutogradStage(
            body,
            inlet,
            inputs=(lambda microbatch: model.batches[microbatch][0]) if first else None,
            loss=model.loss if last else None,
        )

    def _inlet(self, module: nn.Module) -> tuple[nn.Module, nn.Module]:
        """The first stage in two: what its input goes through first, and the rest, whose input has a gradient."""
        inputs = self._model.batches[0][0]
        if inputs.dtype.is_floating_point:
            return nn.Identity(), module
        if isinstance(module, nn.Sequential) and len(module) > 1:
            with torch.no_grad():
                entered = module[0](inputs)
            if isinstance(entered, torch.Tensor) and entered.dtype.is_floating_point:
                return module[0], module[1:]
        if not self._splits:
            # A whole backward can end in the inlet as well.
            return module, nn.Identity()
        raise RunError(
            f"--stages {self._path}: stage 0 takes {_kind(inputs)}, which have no gradient, as one "
            f"{type(module).__name__}",
            f"{self._schedule.name} splits backwards: make it nn.Sequential(embedding, rest), so that its I is more "
            "than nothing and its W less than all",
        )

    def buffer(self, receive: Action) -> torch.Tensor:
        """See `Workload`."""
        return torch.empty_like(self._outputs[receive.stage - 1 if receive.kind is Kind.RECV_F else receive.stage])

    def check(self, program: Program, stages: Stages, tick: Callable[[], None]) -> RankCheck:
        """See `Workload`: gradients and losses against a single process."""
        return compare_stages(self._schedule, program, stages, lambda stage: self.stage(0, stage), tick)


def _function(path: str) -> Callable[..., Any]:
    module, name = module_and_function(path)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise no_module(path, error.name) from None
        raise RunError(f"--stages {path}: {error_text(error)}") from error
    except Exception as error:
        raise RunError(f"--stages {path}: {error_text(error)}") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise RunError(f"--stages {path}: {module} has no function {name!r}", "define: def NAME(stages, microbatches)")
    made: Callable[..., Any] = function
    return made


def _kind(value: object) -> str:
    """What something is, in a few words."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def build(schedule: Schedule, config: RunConfig, host: Host) -> OwnWorkload:
    """The workload that `--stages` runs."""
    return OwnWorkload(schedule, config, host.device)
