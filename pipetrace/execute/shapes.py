"""Whether what one rank sends is what another makes room for.

gloo does not look: it fills the room in part, or takes the bytes for another dtype, or ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from pipetrace.action import Action
from pipetrace.errors import RunError
from pipetrace.execute.program import Program

Shape: TypeAlias = tuple[tuple[int, ...], torch.dtype]
"""Of a value: its shape and dtype."""


def shape_of(value: torch.Tensor) -> Shape:
    """Of a tensor."""
    return value.shape, value.dtype


def shapes_of(program: Program, buffer: Callable[[Action], torch.Tensor]) -> dict[int, Shape]:
    """What a rank believes of all that it sends and receives, by the code of the receive.

    Args:
        program: The rank's.
        buffer: Makes room for the value that a receive brings; what a stage takes is alike for all microbatches.
    """
    alike: dict[tuple[object, ...], Shape] = {}
    shapes = {}
    for receive in (transfer.receive for transfer in (*program.sends, *program.receives)):
        key = receive.kind, receive.stage, receive.pipe
        if key not in alike:
            alike[key] = shape_of(buffer(receive))
        shapes[receive.code] = alike[key]
    return shapes


def check_shapes(program: Program, everyone: Sequence[Mapping[int, Shape]]) -> None:
    """Holds what a rank makes room for against what the senders believe that they send.

    Args:
        program: The rank's.
        everyone: What each rank of the replica believes.

    Raises:
        RunError: Naming the transfer and both beliefs.
    """
    mine = everyone[program.rank]
    for transfer in program.receives:
        code = transfer.receive.code
        theirs = everyone[transfer.sender][code]
        if theirs != mine[code]:
            raise RunError(
                f"rank {transfer.sender} sends {transfer.send} as {shape_text(theirs)}, but rank {transfer.receiver} "
                f"makes room for {shape_text(mine[code])}",
                "see that all ranks make the same model and batches",
            )


def shape_text(shape: Shape) -> str:
    """A shape as people read it: (2, 64, 128) float32."""
    return f"{tuple(shape[0])} {str(shape[1]).removeprefix('torch.')}"
