"""What one process needs of a device to run several ranks on it.

A *stream* does what it is given one after the other; what stands on two streams runs side by side, unless an *event*
orders it. On a GPU these are CUDA's streams and events, and giving work to a stream means launching its kernels. On
a CPU a stream is a thread. The code that runs a schedule is the same over both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.profiler import profile


class Event(Protocol):
    """A point in a stream."""

    def done(self) -> bool:
        """Whether everything before it has run."""


class Stream(Protocol):
    """Runs what it is given, one after the other.

    Args of `run` and `label` are called in the order in which they are given. Where the work itself is asynchronous, as
    kernels on a GPU are, `run` calls it at once, and it is the kernels that keep the order.
    """

    def run(self, work: Callable[[], None]) -> None:
        """Adds work; may return before it has been called."""

    def record(self) -> Event:
        """The point behind all that was added so far."""

    def wait(self, event: Event) -> None:
        """Lets what is added from here on wait for an event of another stream."""


class Device(Protocol):
    """Where tensors lie and work runs."""

    @property
    def tensors(self) -> torch.device:
        """Where tensors are to be made."""

    def stream(self) -> Stream:
        """A new stream."""

    def sleep(self, ns: int) -> None:
        """A synthetic kernel of `ns`, on the stream whose work calls it."""

    def use(self, value: torch.Tensor) -> None:
        """Says that the stream whose work calls it reads a tensor made on another: its memory stays until then."""

    def recording(self) -> profile:
        """torch's profiler, set up so that it sees all streams; not started."""

    def names(self, streams: list[Stream]) -> list[str]:
        """How each stream is called in what the profiler records; asked for while nothing is recorded."""

    def synchronize(self) -> None:
        """Returns when all streams have run all that they were given.

        Raises:
            Exception: Whatever work raised first; nothing that was added after it has run.
        """

    def facts(self) -> dict[str, Any]:
        """What a reader of the figures must know, as plain values: the card, how `sleep` was calibrated."""
