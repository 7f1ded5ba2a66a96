from __future__ import annotations

import pytest
import torch

from pipetrace.action import NO_ACTION, Action, Kind, with_kind
from pipetrace.execute.compute import run_half
from pipetrace.execute.program import Half


class Told:
    """A stage that says what it was asked to do."""

    def __init__(self, output: torch.Tensor | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self._output = output

    def begin_step(self) -> None: ...

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:  # noqa: ARG002
        self.calls.append(("F", microbatch))
        return self._output

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:  # noqa: ARG002
        self.calls.append(("B", microbatch))
        return self._output

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:  # noqa: ARG002
        self.calls.append(("I", microbatch))
        return self._output

    def backward_weight(self, microbatch: int) -> None:
        self.calls.append(("W", microbatch))

    def expert_gradients(self) -> list[torch.Tensor]:
        return []

    def gradients(self) -> list[torch.Tensor]:
        return []


def half(kind: Kind, *, takes: bool = False, gives: bool = False) -> Half:
    action = Action(kind, 1, 3)
    receive = with_kind(action.code, Kind.RECV_F)
    return Half(action, receive if takes else NO_ACTION, receive if gives else NO_ACTION, None)


@pytest.mark.parametrize("kind", [Kind.F, Kind.B, Kind.I, Kind.W])
def test_each_kind_reaches_its_stage(kind: Kind) -> None:
    stage = Told(torch.ones(1))
    gives = kind is not Kind.W
    output = run_half({(0, 1): stage}, half(kind, gives=gives), None)
    assert stage.calls == [(kind.name, 3)]
    assert (output is not None) == gives


def test_what_nobody_takes_is_let_go() -> None:
    assert run_half({(0, 1): Told(torch.ones(1))}, half(Kind.F), None) is None


def test_what_is_missing_is_named() -> None:
    with pytest.raises(RuntimeError, match="1F3 gave no value"):
        run_half({(0, 1): Told()}, half(Kind.F, gives=True), None)
    with pytest.raises(RuntimeError, match="1F3 stands before what it takes"):
        run_half({(0, 1): Told()}, half(Kind.F, takes=True), None)
    with pytest.raises(RuntimeError, match="no compute"):
        run_half({(0, 1): Told()}, half(Kind.SEND_F), None)
